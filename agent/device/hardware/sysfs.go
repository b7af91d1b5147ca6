package hardware

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

// Bounds of what is read of /sys and /dev.
const (
	maxDevices   = 1 << 14
	maxAttribute = 4096 // bytes: a page, which is all that /sys has of one
)

// A number is how the kernel knows a device.
type number struct {
	block        bool
	major, minor uint32
}

func (n number) dir() string {
	if n.block {
		return "block"
	}
	return "char"
}

func (n number) String() string { return fmt.Sprintf("%d:%d", n.major, n.minor) }

// A node is a device that has, or will have, a node in /dev.
type node struct {
	number
	sys   string   // its directory, below /sys/devices; empty: /sys does not know it, such as a pty
	path  string   // of the node; empty: not looked up yet
	links []string // other paths by which patterns found it
}

// A host is a machine's files below a root directory.
type host struct{ root string }

func (h host) at(path string) string { return filepath.Join(h.root, path) }

// nodes lists what /sys knows, by number.
func (h host) nodes() (map[number]*node, error) {
	all := map[number]*node{}
	for _, block := range []bool{false, true} {
		dir := "/sys/dev/" + number{block: block}.dir()
		names, err := list(h.at(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, name := range names {
			n, ok := parseNumber(name, block)
			to, err := os.Readlink(filepath.Join(h.at(dir), name))
			if !ok || err != nil || filepath.IsAbs(to) { // err: it went meanwhile
				continue
			}
			if sys := filepath.Join(dir, to); strings.HasPrefix(sys, "/sys/devices/") {
				all[n] = &node{number: n, sys: sys}
			}
		}
	}
	return all, nil
}

func parseNumber(s string, block bool) (number, bool) {
	a, b, ok := strings.Cut(s, ":")
	major, err := strconv.ParseUint(a, 10, 32)
	minor, err2 := strconv.ParseUint(b, 10, 32)
	return number{block, uint32(major), uint32(minor)}, ok && err == nil && err2 == nil
}

// list gives the names in a directory, sorted, and not more than there can be devices.
func list(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxDevices)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// locate sets the path of the node, as the kernel names it. It reports whether the node is
// there, and is that device.
func (h host) locate(n *node) bool {
	if n.path == "" {
		for line := range strings.SplitSeq(h.attribute(n.sys, "uevent"), "\n") {
			if name, ok := strings.CutPrefix(line, "DEVNAME="); ok && filepath.IsLocal(name) {
				n.path = "/dev/" + name
			}
		}
	}
	have, ok := h.stat(n.path)
	return ok && have == n.number
}

// stat gives the number of a device node; a symbolic link is none.
func (h host) stat(path string) (number, bool) {
	if path == "" {
		return number{}, false
	}
	var st unix.Stat_t
	if err := unix.Lstat(h.at(path), &st); err != nil {
		return number{}, false
	}
	kind := st.Mode & unix.S_IFMT
	return number{kind == unix.S_IFBLK, unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))}, kind == unix.S_IFBLK ||
		kind == unix.S_IFCHR
}

// attribute reads a file in a device's directory; empty: there is none, or it cannot be
// read. What a device says of itself is a claim.
func (h host) attribute(sys, name string) string {
	b, err := untrusted.ReadFile(h.at(sys), name, maxAttribute)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

// link gives the last part of what a symbolic link in a device's directory leads to.
func (h host) link(sys, name string) string {
	to, err := os.Readlink(filepath.Join(h.at(sys), name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// upward gives a device's directory and those that it is a part of.
func upward(sys string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for dir := sys; strings.HasPrefix(dir, "/sys/devices/"); dir = filepath.Dir(dir) {
			if !yield(dir) {
				return
			}
		}
	}
}

// natural orders names with numbers in them as a person does: ttyUSB2 before ttyUSB10.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == 0 || y == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		p, q := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
		if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q), cmp.Compare(x, y)); c != 0 {
			return c
		}
		a, b = a[x:], b[y:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits is how many s begins with.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
