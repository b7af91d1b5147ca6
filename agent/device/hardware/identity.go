package hardware

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// An identity identifies a device independently of its device number.
type identity struct {
	id       string // contains the port if the device has no serial number
	hardware string // ID of the hardware to which the device belongs
	port     string // port of the USB device; empty if the IDs contain it or the device is not USB
	anchor
}

// An anchor is the nearest piece of hardware with a stable name.
type anchor struct{ dir, name string }

// buses contains the buses whose devices have stable names, by address, slot or port.
var buses = map[string]bool{"platform": true, "amba": true, "pci": true, "pnp": true, "serio": true, "mmc": true,
	"sdio": true, "virtio": true, "vmbus": true, "xen": true, "ccw": true, "scsi": true, "spi": true, "hdaudio": true}

// identifyNode builds a device's ID from the hardware to which the device belongs. The ID of a USB device contains its
// vendor, its product, and its serial number. Without a serial number, it contains the port. The ID of any other
// device contains its address on the bus. If several devices have the same ID, a number is added to all but the
// first, in the order of the kernel's names.
func (f *finder) identifyNode(n *node) identity {
	if n.sys == "" {
		id := "dev-" + sanitizeID(strings.TrimPrefix(n.path, "/dev/"))
		return identity{id: id, hardware: id}
	}
	kind := cmp.Or(f.readLink(n.sys, "subsystem"), "device")
	if n.block {
		kind += "-" + cmp.Or(f.readAttribute(n.sys, "partition"), "disk")
	}
	var out identity
	if dir := f.usbDir(n.sys); dir != "" {
		out = f.usbIdentity(n.sys, dir)
	} else {
		out.anchor = f.findAnchor(n.sys)
		if out.dir == "" { // a virtual device has only the kernel's name
			id := sanitizeID(strings.TrimPrefix(n.sys, "/sys/devices/"))
			return identity{id: id[max(0, len(id)-maxPath):], hardware: id[max(0, len(id)-maxPath):]}
		}
		out.id, out.hardware = out.name, out.name
	}
	out.id += "-" + cleanName(kind)
	if rank := f.rankOnAnchor(n, out.anchor); rank > 0 {
		out.id += "-" + strconv.Itoa(rank)
	}
	return out
}

// usbIdentity returns the identity of a device that is part of a USB device. The parameter sys is the directory of the
// device, and dir is the directory of the USB device.
func (f *finder) usbIdentity(sys, dir string) identity {
	out := identity{anchor: anchor{dir: dir}, port: f.usbPort(dir)}
	out.id = fmt.Sprintf("usb-%s:%s", cleanName(f.readAttribute(dir, "idVendor")), cleanName(f.readAttribute(dir, "idProduct")))
	// Devices without a serial number often report zeros.
	if serial := cleanName(f.readAttribute(dir, "serial")); strings.Trim(serial, "0-_.") != "" {
		out.id += "-" + serial
	} else {
		out.id, out.port = out.id+"-"+out.port, ""
	}
	out.hardware = out.id
	for part := range eachAncestor(sys) {
		if part == dir {
			break
		}
		if n := f.readAttribute(part, "bInterfaceNumber"); n != "" && filepath.Dir(part) == dir {
			out.dir = part
			out.id += "-if" + cleanName(n)
		}
	}
	out.name = out.id
	return out
}

// usbPort returns the port of a USB device. It contains the controller, the USB version of the root hub, and the path
// of ports. The version is needed because a controller numbers the ports of each version separately.
func (f *finder) usbPort(dir string) string {
	base := filepath.Base(dir) // 1-1.2
	_, ports, _ := strings.Cut(base, "-")
	for up := range eachAncestor(dir) {
		if !strings.HasPrefix(filepath.Base(up), "usb") || f.readAttribute(up, "idVendor") == "" {
			continue
		}
		version, _, _ := strings.Cut(f.readAttribute(up, "version"), ".")
		controller := f.findAnchor(filepath.Dir(up)).name
		return cleanName(cmp.Or(controller, filepath.Base(up)) + "-usb" + strings.TrimSpace(version) + "-" + ports)
	}
	return cleanName(base)
}

// findAnchor returns the anchor of a device that is not USB. It is empty if the device is virtual.
func (f *finder) findAnchor(sys string) anchor {
	for dir := range eachAncestor(sys) {
		if bus := f.readLink(dir, "subsystem"); buses[bus] {
			return anchor{dir, cleanName(bus + "-" + filepath.Base(dir))}
		}
	}
	return anchor{}
}

// rankOnAnchor returns how many devices of the same kind on the same anchor come before the node n, in the order of
// their names.
func (f *finder) rankOnAnchor(n *node, a anchor) (rank int) {
	kind, part := f.readLink(n.sys, "subsystem"), f.readAttribute(n.sys, "partition")
	for _, o := range f.nodesByNumber {
		if o == n || o.block != n.block || !strings.HasPrefix(o.sys, a.dir+"/") && o.sys != a.dir || compareNatural(o.sys, n.sys) >= 0 {
			continue
		}
		if f.readLink(o.sys, "subsystem") == kind && f.readAttribute(o.sys, "partition") == part && f.anchorDir(o) == a.dir {
			rank++
		}
	}
	return rank
}

func (f *finder) anchorDir(n *node) string {
	if dir := f.usbDir(n.sys); dir != "" {
		return f.usbIdentity(n.sys, dir).dir
	}
	return f.findAnchor(n.sys).dir
}

// Maximum lengths of a part of an ID that the device reports, and of a directory's name.
const (
	maxName = 128
	maxPath = 512
)

// cleanName turns a string that a device reports into a part of an ID.
func cleanName(s string) string {
	s = sanitizeID(strings.TrimSpace(s))
	return s[:min(len(s), maxName)]
}

// sanitizeID replaces all characters that are not allowed in an ID.
func sanitizeID(s string) string {
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
