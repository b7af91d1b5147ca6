package hardware

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// An identity says which device one is, whatever number the kernel gives it.
type identity struct {
	id   string // without a serial number it has the port
	hard string // the same of the piece of hardware that it is a part of
	port string // where that is plugged in, if the IDs do not have it; empty: they do, or it is no USB device
	anchor
}

// An anchor is the nearest piece of hardware that has a lasting name.
type anchor struct{ dir, name string }

// buses are those whose devices have names that last: by address, slot or port.
var buses = map[string]bool{"platform": true, "amba": true, "pci": true, "pnp": true, "serio": true, "mmc": true,
	"sdio": true, "virtio": true, "vmbus": true, "xen": true, "ccw": true, "scsi": true, "spi": true, "hdaudio": true}

// identify names a device after what it is a part of: for USB the vendor, the product, and
// the serial number or else the port; else the address on its bus. Of several that have all
// this in common all but the first, in the order of the kernel's names, get a number.
func (f *finder) identify(n *node) identity {
	if n.sys == "" {
		id := "dev-" + letters(strings.TrimPrefix(n.path, "/dev/"))
		return identity{id: id, hard: id}
	}
	kind := cmp.Or(f.link(n.sys, "subsystem"), "device")
	if n.block {
		kind += "-" + cmp.Or(f.attribute(n.sys, "partition"), "disk")
	}
	var out identity
	if dir := f.usb(n.sys); dir != "" {
		out = f.usbIdentity(n.sys, dir)
	} else if out.anchor = f.anchorOf(n.sys); out.dir == "" { // virtual: its name is all there is
		id := letters(strings.TrimPrefix(n.sys, "/sys/devices/"))
		return identity{id: id[max(0, len(id)-maxPath):], hard: id[max(0, len(id)-maxPath):]}
	} else {
		out.id, out.hard = out.name, out.name
	}
	out.id += "-" + clean(kind)
	if rank := f.rank(n, out.anchor); rank > 0 {
		out.id += "-" + strconv.Itoa(rank)
	}
	return out
}

// usbIdentity is that of a part of the USB device dir.
func (f *finder) usbIdentity(sys, dir string) identity {
	out := identity{anchor: anchor{dir: dir}, port: f.port(dir)}
	out.id = fmt.Sprintf("usb-%s:%s", clean(f.attribute(dir, "idVendor")), clean(f.attribute(dir, "idProduct")))
	if serial := clean(f.attribute(dir, "serial")); strings.Trim(serial, "0-_.") != "" { // zeros are what those have that have none
		out.id += "-" + serial
	} else {
		out.id, out.port = out.id+"-"+out.port, ""
	}
	out.hard = out.id
	for part := range upward(sys) {
		if part == dir {
			break
		}
		if n := f.attribute(part, "bInterfaceNumber"); n != "" && filepath.Dir(part) == dir {
			out.dir = part
			out.id += "-if" + clean(n)
		}
	}
	out.name = out.id
	return out
}

// port names where a USB device is plugged in: the controller, the speed of its hub, since
// one controller counts ports twice, and the ports on the way.
func (f *finder) port(dir string) string {
	base := filepath.Base(dir) // 1-1.2
	_, ports, _ := strings.Cut(base, "-")
	for up := range upward(dir) {
		if !strings.HasPrefix(filepath.Base(up), "usb") || f.attribute(up, "idVendor") == "" {
			continue
		}
		version, _, _ := strings.Cut(f.attribute(up, "version"), ".")
		controller := f.anchorOf(filepath.Dir(up)).name
		return clean(cmp.Or(controller, filepath.Base(up)) + "-usb" + strings.TrimSpace(version) + "-" + ports)
	}
	return clean(base)
}

// anchorOf gives what a device that is not of USB hangs on; none: it is virtual.
func (f *finder) anchorOf(sys string) anchor {
	for dir := range upward(sys) {
		if bus := f.link(dir, "subsystem"); buses[bus] {
			return anchor{dir, clean(bus + "-" + filepath.Base(dir))}
		}
	}
	return anchor{}
}

// rank counts the devices of the same kind on the same anchor whose names come before.
func (f *finder) rank(n *node, a anchor) (rank int) {
	kind, part := f.link(n.sys, "subsystem"), f.attribute(n.sys, "partition")
	for _, o := range f.known {
		if o == n || o.block != n.block || !strings.HasPrefix(o.sys, a.dir+"/") && o.sys != a.dir || natural(o.sys, n.sys) >= 0 {
			continue
		}
		if f.link(o.sys, "subsystem") == kind && f.attribute(o.sys, "partition") == part && f.anchored(o) == a.dir {
			rank++
		}
	}
	return rank
}

func (f *finder) anchored(n *node) string {
	if dir := f.usb(n.sys); dir != "" {
		return f.usbIdentity(n.sys, dir).dir
	}
	return f.anchorOf(n.sys).dir
}

// Bounds of IDs: of what of them a device says itself, and of a directory's name.
const (
	maxName = 128
	maxPath = 512
)

// clean makes of what a device says of itself a part of an ID.
func clean(s string) string {
	s = letters(strings.TrimSpace(s))
	return s[:min(len(s), maxName)]
}

// letters puts something harmless in place of what is not a letter of a plain name.
func letters(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.:", r):
			return r
		case r == '/':
			return '-'
		}
		return '_'
	}, s)
}
