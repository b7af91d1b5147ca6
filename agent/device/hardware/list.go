package hardware

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/sorting"
)

// A Unit describes the smallest part of a resource that can be allocated: see unit.
type Unit struct {
	Resource string
	ID       string
	Shared   int      // the maximum number of containers that may have the unit at the same time
	Nodes    []string // paths on the host; empty if the unit is absent, but a container has it
}

// List returns the units that are present, the absent units that containers have, and the matching devices that are
// withheld.
func (h *Hardware) List() (out []Unit, kept []WithheldDevice) {
	if h == nil {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.foundUnits {
		c := &h.c.Classes[i]
		for _, u := range h.foundUnits[i] {
			one := Unit{Resource: c.Resource, ID: u.id, Shared: max(c.Shared, 1)}
			for _, n := range u.nodes {
				one.Nodes = append(one.Nodes, n.path)
			}
			out = append(out, one)
		}
		var away []string
		for d := range h.missing {
			if d.Resource == c.Resource && !slices.Contains(away, d.id) {
				away = append(away, d.id)
			}
		}
		slices.SortFunc(away, compareNatural)
		for _, id := range away {
			out = append(out, Unit{Resource: c.Resource, ID: id, Shared: max(c.Shared, 1)})
		}
	}
	return out, slices.Clone(h.withheldDevices)
}

// Serves reports whether a resource is configured.
func (h *Hardware) Serves(resource string) bool {
	return h != nil && slices.ContainsFunc(h.c.Classes, func(c config.DeviceClass) bool { return c.Resource == resource })
}

// UnitOf returns the ID of the unit that a device ID of the Manager belongs to.
func UnitOf(device string) string { return unitOf(device) }

// A Part is a device node with the attributes that the configuration can match. A USB device reports its own
// attributes, which are not verified.
type Part struct {
	Path                    string
	Subsystem, Driver       string
	Vendor, Product, Serial string
	Name                    string // manufacturer and product of the USB device
}

// Parts lists the device nodes of a host. The parameter root is the directory with the host's files. An empty root
// means the directory /. Parts omits console terminals and the kernel's own devices, such as /dev/null.
func Parts(root string) ([]Part, error) {
	h := host{root}
	known, err := h.listNodes()
	if err != nil {
		return nil, err
	}
	var out []Part
	for _, n := range slices.SortedFunc(maps.Values(known), func(a, b *node) int { return compareNatural(a.sys, b.sys) }) {
		kind := strings.TrimPrefix(n.sys, "/sys/devices/virtual/")
		if strings.HasPrefix(kind, "tty/") || strings.HasPrefix(kind, "vc/") || strings.HasPrefix(kind, "mem/") || !h.locateNode(n) {
			continue
		}
		p := Part{Path: n.path, Subsystem: h.readLink(n.sys, "subsystem")}
		for dir := range eachAncestor(n.sys) {
			if p.Driver = h.readLink(dir, "driver"); p.Driver != "" {
				break
			}
		}
		if dir := h.usbDir(n.sys); dir != "" {
			p.Vendor, p.Product, p.Serial = h.readAttribute(dir, "idVendor"), h.readAttribute(dir, "idProduct"),
				h.readAttribute(dir, "serial")
			p.Name = strings.TrimSpace(h.readAttribute(dir, "manufacturer") + " " + h.readAttribute(dir, "product"))
		}
		out = append(out, p)
	}
	sorting.StableBy(out, func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Subsystem, b.Subsystem),
			compareNatural(a.Path, b.Path))
	})
	return out, nil
}
