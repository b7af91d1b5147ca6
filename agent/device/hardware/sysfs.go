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

// Limits for reading /sys and /dev.
const (
	maxDevices   = 1 << 14
	maxAttribute = 4096 // one page, the maximum size of an attribute in bytes
)

// A number identifies a device in the kernel, by its type and its major and minor number.
type number struct {
	block        bool
	major, minor uint32
}

func (n number) kind() string {
	if n.block {
		return "block"
	}
	return "char"
}

func (n number) String() string { return fmt.Sprintf("%d:%d", n.major, n.minor) }

// A node is a device that has, or will get, a device node in /dev.
type node struct {
	number
	sys   string   // directory of the device below /sys/devices; empty if it is not in /sys, such as a pty
	path  string   // path of the device node; empty until it is read
	links []string // symbolic links to the device node that patterns matched
}

// A host reads a machine's files below a root directory.
type host struct{ root string }

func (h host) absolutePath(path string) string { return filepath.Join(h.root, path) }

// listNodes returns the devices in /sys, by device number.
func (h host) listNodes() (map[number]*node, error) {
	all := map[number]*node{}
	for _, block := range []bool{false, true} {
		dir := "/sys/dev/" + number{block: block}.kind()
		names, err := listNames(h.absolutePath(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, name := range names {
			n, ok := parseNumber(name, block)
			to, err := os.Readlink(filepath.Join(h.absolutePath(dir), name))
			if !ok || err != nil || filepath.IsAbs(to) { // if Readlink failed, the device was removed in the meantime
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

// listNames returns at most maxDevices names in a directory, sorted.
func listNames(dir string) ([]string, error) {
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

// locateNode sets the node's path, if it is not known yet, from the name that the kernel reports for the device. It
// reports whether a device node with the device's number exists at this path.
func (h host) locateNode(n *node) bool {
	if n.path == "" {
		for line := range strings.SplitSeq(h.readAttribute(n.sys, "uevent"), "\n") {
			if name, ok := strings.CutPrefix(line, "DEVNAME="); ok && filepath.IsLocal(name) {
				n.path = "/dev/" + name
			}
		}
	}
	have, ok := h.statDevice(n.path)
	return ok && have == n.number
}

// statDevice returns the device number of a device node. It does not follow symbolic links.
func (h host) statDevice(path string) (number, bool) {
	if path == "" {
		return number{}, false
	}
	var st unix.Stat_t
	if err := unix.Lstat(h.absolutePath(path), &st); err != nil {
		return number{}, false
	}
	kind := st.Mode & unix.S_IFMT
	return number{kind == unix.S_IFBLK, unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))}, kind == unix.S_IFBLK ||
		kind == unix.S_IFCHR
}

// readAttribute returns an attribute of a device, or "" if it does not exist or cannot be read. Some attributes are
// reported by the device itself and are not verified.
func (h host) readAttribute(sys, name string) string {
	b, err := untrusted.ReadFile(h.absolutePath(sys), name, maxAttribute)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

// readLink returns the last element of the target of a symbolic link in a device's directory.
func (h host) readLink(sys, name string) string {
	to, err := os.Readlink(filepath.Join(h.absolutePath(sys), name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// eachAncestor iterates over the directories of a device and its ancestors.
func eachAncestor(sys string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for dir := sys; strings.HasPrefix(dir, "/sys/devices/"); dir = filepath.Dir(dir) {
			if !yield(dir) {
				return
			}
		}
	}
}

// compareNatural compares names, and numbers in them by value, so that ttyUSB2 comes before ttyUSB10.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		x, y := leadingDigits(a), leadingDigits(b)
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

// leadingDigits returns the number of digits at the start of s.
func leadingDigits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
