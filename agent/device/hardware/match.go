package hardware

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/config"
)

// A finder matches devices with resources during one scan.
type finder struct {
	host
	nodesByNumber map[number]*node  // the devices in /sys, and other devices that match a path pattern
	usedDisks     map[number]string // how the host uses its block devices; nil until it is needed
	exact         map[number]bool   // the configuration names the device explicitly; see withheldReason
}

// findNodes returns the nodes of each class, in the order of the classes, and the devices that match a class but are withheld.
// A node belongs to the first class that it matches.
func (h host) findNodes(classes []config.DeviceClass) (out [][]*node, kept []WithheldDevice, f *finder, err error) {
	known, err := h.listNodes()
	if err != nil {
		return nil, nil, nil, err
	}
	f = &finder{host: h, nodesByNumber: known, exact: map[number]bool{}}
	out = make([][]*node, len(classes))
	taken := map[number]bool{}
	for i := range classes {
		for _, n := range f.matchClass(&classes[i]) {
			if taken[n.number] {
				continue
			}
			taken[n.number] = true
			if why := f.withheldReason(n); why != "" {
				f.locateNode(n)
				kept = append(kept, WithheldDevice{Path: n.path, Resource: classes[i].Resource, Why: why})
				continue
			}
			out[i] = append(out[i], n)
		}
	}
	return out, kept, f, nil
}

// matchClass returns the nodes that match a class, in a stable order.
func (f *finder) matchClass(c *config.DeviceClass) []*node {
	fits := map[number]*node{}
	for i := range c.Match {
		for _, n := range f.candidateNodes(&c.Match[i]) {
			if !f.matchesNode(n, &c.Match[i]) {
				continue
			}
			fits[n.number] = n
			if m := c.Match[i].Subsystem; m == "block" || m == "mem" {
				f.exact[n.number] = true
			}
		}
	}
	return slices.SortedFunc(maps.Values(fits), func(a, b *node) int { return compareNatural(a.sys+a.path, b.sys+b.path) })
}

// candidateNodes returns the nodes that the paths of a match select. A match without paths selects all nodes.
func (f *finder) candidateNodes(m *config.DeviceMatch) []*node {
	if len(m.Paths) == 0 {
		return slices.Collect(maps.Values(f.nodesByNumber))
	}
	found := map[number]*node{}
	for _, pattern := range m.Paths {
		f.eachDevicePath(pattern, func(link, at string) {
			id, ok := f.statDevice(at)
			if !ok || len(f.nodesByNumber) >= maxDevices {
				return
			}
			n := f.nodesByNumber[id]
			if n == nil {
				n = &node{number: id, path: at}
				f.nodesByNumber[id] = n
			}
			if link != at && !slices.Contains(n.links, link) {
				n.links = append(n.links, link)
			}
			f.exact[id] = f.exact[id] || !hasWildcard(pattern)
			found[id] = n
		})
	}
	return slices.Collect(maps.Values(found))
}

func (f *finder) matchesNode(n *node, m *config.DeviceMatch) bool {
	if n.sys == "" {
		return m.USB == nil && m.Driver == "" && m.Subsystem == "" && len(m.Attributes) == 0
	}
	if m.Subsystem != "" && f.readLink(n.sys, "subsystem") != m.Subsystem {
		return false
	}
	if m.Driver != "" && !f.anyAncestor(n, func(dir string) bool { return f.readLink(dir, "driver") == m.Driver }) {
		return false
	}
	for name, pattern := range m.Attributes {
		if value := f.inheritedAttribute(n, name); value == "" || !matchPattern(pattern, value) {
			return false
		}
	}
	return m.USB == nil || f.matchesUSB(n, m.USB)
}

func (f *finder) matchesUSB(n *node, u *config.USBMatch) bool {
	dir := f.usbDir(n.sys)
	return dir != "" && (u.Vendor == "" || strings.EqualFold(f.readAttribute(dir, "idVendor"), u.Vendor)) &&
		(u.Product == "" || strings.EqualFold(f.readAttribute(dir, "idProduct"), u.Product)) &&
		(u.Serial == "" || matchPattern(u.Serial, f.readAttribute(dir, "serial")))
}

// matchPattern reports whether a pattern matches a value. A pattern without wildcards may contain
// slashes.
func matchPattern(pattern, value string) bool {
	ok, _ := path.Match(pattern, value)
	return ok || pattern == value
}

// anyAncestor reports whether the function match returns true for the directory of the device, or for the directory of
// one of its ancestors.
func (f *finder) anyAncestor(n *node, match func(dir string) bool) bool {
	for dir := range eachAncestor(n.sys) {
		if match(dir) {
			return true
		}
	}
	return false
}

// inheritedAttribute returns an attribute of the device or, if the device does not have it, of the nearest ancestor
// that does.
func (f *finder) inheritedAttribute(n *node, name string) (value string) {
	f.anyAncestor(n, func(dir string) bool {
		value = f.readAttribute(dir, name)
		return value != ""
	})
	return value
}

// usbDir returns the directory of the USB device to which a device belongs, or "".
func (h host) usbDir(sys string) string {
	for dir := range eachAncestor(sys) {
		if h.readLink(dir, "subsystem") == "usb" && h.readAttribute(dir, "idVendor") != "" {
			return dir
		}
	}
	return ""
}
