package hardware

import (
	"os"
	"path/filepath"
	"strings"
)

// memMajor is the major device number of memory devices.

// https://docs.kernel.org/admin-guide/devices.html
const memMajor = 1

// withheldReason returns the reason why a node is withheld from containers, or "". Block devices that the host uses are
// always withheld. Other disks, and devices that expose the memory or the log of the host, are provided only if the
// configuration specifies them by their subsystem or by a path without wildcards.
func (f *finder) withheldReason(n *node) string {
	switch {
	case n.block:
		if f.usedDisks == nil {
			f.usedDisks = f.host.usedBlockDevices()
		}
		if why := f.usedDisks[n.number]; why != "" {
			return why
		}
		if !f.exact[n.number] {
			return "is a disk: name it by a path without wildcards, or write subsystem: block"
		}
	case n.major == memMajor && (n.minor <= 4 && n.minor != 3 || n.minor == 11): // mem, kmem, port and kmsg
		if !f.exact[n.number] {
			return "gives access to the memory or the log of the host: name it by a path without wildcards"
		}
	}
	return ""
}

// usedBlockDevices returns the block devices that the host uses, and how it uses them. A device is used if it or a
// part of it is mounted, is swap space, or belongs to another device that is used.
func (h host) usedBlockDevices() map[number]string {
	out := map[number]string{}
	table, _ := os.ReadFile(h.absolutePath("/proc/self/mountinfo"))
	for line := range strings.Lines(string(table)) {
		w := strings.Fields(line)
		if len(w) < 5 {
			continue
		}
		why := "is mounted on the host at " + w[4]
		if n, ok := parseNumber(w[2], true); ok && n.major != 0 {
			h.markUsed(out, n, why)
		}
		if _, rest, ok := strings.Cut(line, " - "); ok { // for btrfs, the device number in the table does not belong to a disk
			if w := strings.Fields(rest); len(w) > 1 && strings.HasPrefix(w[1], "/dev/") {
				h.markPath(out, w[1], why)
			}
		}
	}
	swaps, _ := os.ReadFile(h.absolutePath("/proc/swaps"))
	for line := range strings.Lines(string(swaps)) {
		if w := strings.Fields(line); len(w) > 0 && strings.HasPrefix(w[0], "/dev/") {
			h.markPath(out, w[0], "is swap of the host")
		}
	}
	return out
}

func (h host) markPath(out map[number]string, path, why string) {
	if at, ok := h.resolveLink(filepath.Clean(path)); ok {
		if n, ok := h.statDevice(at); ok && n.block {
			h.markUsed(out, n, why)
		}
	}
}

// markUsed marks a device as used. It also marks the disk if the device is a partition, and the devices on which the
// device is built.
func (h host) markUsed(out map[number]string, n number, why string) {
	if out[n] != "" {
		return
	}
	out[n] = why
	to, err := os.Readlink(h.absolutePath("/sys/dev/block/" + n.String()))
	if err != nil {
		return
	}
	sys := filepath.Join("/sys/dev/block", to)
	if h.readAttribute(sys, "partition") != "" {
		h.markSys(out, filepath.Dir(sys), why)
	}
	names, _ := listNames(h.absolutePath(sys + "/slaves"))
	for _, name := range names {
		if to, err := os.Readlink(h.absolutePath(sys + "/slaves/" + name)); err == nil {
			h.markSys(out, filepath.Join(sys, "slaves", to), why)
		}
	}
}

func (h host) markSys(out map[number]string, sys, why string) {
	if n, ok := parseNumber(h.readAttribute(sys, "dev"), true); ok {
		h.markUsed(out, n, why)
	}
}
