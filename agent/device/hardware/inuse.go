package hardware

import (
	"os"
	"path/filepath"
	"strings"
)

// memMajor is the number of the devices of memory.
// https://docs.kernel.org/admin-guide/devices.html
const memMajor = 1

// keep says why a node is not given to containers; empty: it is. What the host has in use
// is never given; disks, and what gives the memory of the host away, only if the
// configuration means them: by a path without wildcards, or by their subsystem.
func (f *finder) keep(n *node) string {
	switch {
	case n.block:
		if f.used == nil {
			f.used = f.host.used()
		}
		if why := f.used[n.number]; why != "" {
			return why
		}
		if !f.exact[n.number] {
			return "is a disk: name it by a path without wildcards, or write subsystem: block"
		}
	case n.major == memMajor && (n.minor <= 4 && n.minor != 3 || n.minor == 11): // mem, kmem, port; kmsg
		if !f.exact[n.number] {
			return "gives access to the memory or the log of the host: name it by a path without wildcards"
		}
	}
	return ""
}

// used says of block devices that the host has in use what for: they, or parts of them, are
// mounted, swapped to, or hold another device.
func (h host) used() map[number]string {
	out := map[number]string{}
	table, _ := os.ReadFile(h.at("/proc/self/mountinfo"))
	for line := range strings.Lines(string(table)) {
		w := strings.Fields(line)
		if len(w) < 5 {
			continue
		}
		why := "is mounted on the host at " + w[4]
		if n, ok := parseNumber(w[2], true); ok && n.major != 0 {
			h.use(out, n, why)
		}
		if _, rest, ok := strings.Cut(line, " - "); ok { // btrfs has a number of its own
			if w := strings.Fields(rest); len(w) > 1 && strings.HasPrefix(w[1], "/dev/") {
				h.usePath(out, w[1], why)
			}
		}
	}
	swaps, _ := os.ReadFile(h.at("/proc/swaps"))
	for line := range strings.Lines(string(swaps)) {
		if w := strings.Fields(line); len(w) > 0 && strings.HasPrefix(w[0], "/dev/") {
			h.usePath(out, w[0], "is swap of the host")
		}
	}
	return out
}

func (h host) usePath(out map[number]string, path, why string) {
	if at, ok := h.follow(filepath.Clean(path)); ok {
		if n, ok := h.stat(at); ok && n.block {
			h.use(out, n, why)
		}
	}
}

// use notes a device, the disk that it is a partition of, and those that it is made of.
func (h host) use(out map[number]string, n number, why string) {
	if out[n] != "" {
		return
	}
	out[n] = why
	to, err := os.Readlink(h.at("/sys/dev/block/" + n.String()))
	if err != nil {
		return
	}
	sys := filepath.Join("/sys/dev/block", to)
	if h.attribute(sys, "partition") != "" {
		h.useSys(out, filepath.Dir(sys), why)
	}
	names, _ := list(h.at(sys + "/slaves"))
	for _, name := range names {
		if to, err := os.Readlink(h.at(sys + "/slaves/" + name)); err == nil {
			h.useSys(out, filepath.Join(sys, "slaves", to), why)
		}
	}
}

func (h host) useSys(out map[number]string, sys, why string) {
	if n, ok := parseNumber(h.attribute(sys, "dev"), true); ok {
		h.use(out, n, why)
	}
}
