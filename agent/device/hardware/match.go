package hardware

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/config"
)

// A finder finds the devices of resources once.
type finder struct {
	host
	known map[number]*node  // all of /sys, and what patterns found beyond it
	used  map[number]string // block devices that the host uses, and for what; nil: not looked up yet
	exact map[number]bool   // the configuration means it: see keep
}

// find gives the nodes of each class, by its place; a node belongs to the first class that
// it matches. It also says which it does not give, and why.
func (h host) find(classes []config.DeviceClass) (out [][]*node, kept []Kept, f *finder, err error) {
	known, err := h.nodes()
	if err != nil {
		return nil, nil, nil, err
	}
	f = &finder{host: h, known: known, exact: map[number]bool{}}
	out = make([][]*node, len(classes))
	taken := map[number]bool{}
	for i := range classes {
		for _, n := range f.class(&classes[i]) {
			if taken[n.number] {
				continue
			}
			taken[n.number] = true
			if why := f.keep(n); why != "" {
				f.locate(n)
				kept = append(kept, Kept{Path: n.path, Resource: classes[i].Resource, Why: why})
				continue
			}
			out[i] = append(out[i], n)
		}
	}
	return out, kept, f, nil
}

// class lists the nodes that a class matches, in a stable order.
func (f *finder) class(c *config.DeviceClass) []*node {
	fits := map[number]*node{}
	for i := range c.Match {
		for _, n := range f.candidates(&c.Match[i]) {
			if !f.fits(n, &c.Match[i]) {
				continue
			}
			fits[n.number] = n
			if m := c.Match[i].Subsystem; m == "block" || m == "mem" {
				f.exact[n.number] = true
			}
		}
	}
	return slices.SortedFunc(maps.Values(fits), func(a, b *node) int { return natural(a.sys+a.path, b.sys+b.path) })
}

// candidates are those that the paths match, else all.
func (f *finder) candidates(m *config.DeviceMatch) []*node {
	if len(m.Paths) == 0 {
		return slices.Collect(maps.Values(f.known))
	}
	found := map[number]*node{}
	for _, pattern := range m.Paths {
		f.glob(pattern, func(link, at string) {
			id, ok := f.stat(at)
			if !ok || len(f.known) >= maxDevices {
				return
			}
			n := f.known[id]
			if n == nil {
				n = &node{number: id, path: at}
				f.known[id] = n
			}
			if link != at && !slices.Contains(n.links, link) {
				n.links = append(n.links, link)
			}
			f.exact[id] = f.exact[id] || !magic(pattern)
			found[id] = n
		})
	}
	return slices.Collect(maps.Values(found))
}

func (f *finder) fits(n *node, m *config.DeviceMatch) bool {
	if n.sys == "" {
		return m.USB == nil && m.Driver == "" && m.Subsystem == "" && len(m.Attributes) == 0
	}
	if m.Subsystem != "" && f.link(n.sys, "subsystem") != m.Subsystem {
		return false
	}
	if m.Driver != "" && !f.above(n, func(dir string) bool { return f.link(dir, "driver") == m.Driver }) {
		return false
	}
	for name, pattern := range m.Attributes {
		if value := f.inherited(n, name); value == "" || !matches(pattern, value) {
			return false
		}
	}
	return m.USB == nil || f.fitsUSB(n, m.USB)
}

func (f *finder) fitsUSB(n *node, u *config.USBMatch) bool {
	dir := f.usb(n.sys)
	return dir != "" && (u.Vendor == "" || strings.EqualFold(f.attribute(dir, "idVendor"), u.Vendor)) &&
		(u.Product == "" || strings.EqualFold(f.attribute(dir, "idProduct"), u.Product)) &&
		(u.Serial == "" || matches(u.Serial, f.attribute(dir, "serial")))
}

// matches reports whether a pattern fits a value; one without wildcards may have slashes.
func matches(pattern, value string) bool {
	ok, _ := path.Match(pattern, value)
	return ok || pattern == value
}

// above reports whether something is so of the device, or of one that it is a part of.
func (f *finder) above(n *node, is func(dir string) bool) bool {
	for dir := range upward(n.sys) {
		if is(dir) {
			return true
		}
	}
	return false
}

// inherited reads an attribute of the device, or else of the nearest that it is a part of.
func (f *finder) inherited(n *node, name string) (value string) {
	f.above(n, func(dir string) bool {
		value = f.attribute(dir, name)
		return value != ""
	})
	return value
}

// usb gives the USB device that a device is, or is a part of; empty: none.
func (h host) usb(sys string) string {
	for dir := range upward(sys) {
		if h.link(dir, "subsystem") == "usb" && h.attribute(dir, "idVendor") != "" {
			return dir
		}
	}
	return ""
}
