package hardware

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/config"
)

// The units that an EdgeConfiguration can select.
const (
	unitNode   = "node"
	unitDevice = "device"
	unitAll    = "all"
)

// A unit is the smallest part of a resource that can be allocated. It has one or more device nodes.
type unit struct {
	id    string
	port  string // port of the USB device, if the ID does not contain it
	nodes []*node
	mark  string // the concatenated marks of the nodes; see nodeMark
}

// groupUnits groups the nodes of a class into units. The parameter ports contains the last known port of each device
// with which a container was started. The keys of this map consist of the resource and the ID. If several devices have
// the same serial number, the device at the recorded port gets the ID without a port. The IDs of the other devices
// contain their ports. These devices keep their IDs even if only one of them is present later.
func (f *finder) groupUnits(c *config.DeviceClass, nodes []*node, ports map[string]string) []*unit {
	byKey := map[[2]string]*unit{}
	for _, n := range nodes {
		who := f.identifyNode(n)
		key := [2]string{who.id, who.port}
		switch c.Unit {
		case unitDevice:
			key[0] = who.hardware
		case unitAll:
			key = [2]string{"all", ""}
		}
		u := byKey[key]
		if u == nil {
			u = &unit{id: key[0], port: key[1]}
			byKey[key] = u
		}
		u.nodes = append(u.nodes, n)
		u.mark += f.nodeMark(n)
	}
	for _, u := range byKey {
		if _, known := ports[portKey(c.Resource, u.idWithPort())]; known && u.port != "" {
			u.id, u.port = u.idWithPort(), ""
		}
	}
	all := slices.SortedFunc(maps.Values(byKey), func(a, b *unit) int {
		if a.id == b.id && a.port != b.port {
			switch ports[portKey(c.Resource, a.id)] {
			case a.port:
				return -1
			case b.port:
				return 1
			}
		}
		return compareNatural(a.id+" "+a.port, b.id+" "+b.port)
	})
	for i := len(all) - 1; i > 0; i-- {
		if all[i].id == all[i-1].id {
			all[i].id, all[i].port = all[i].idWithPort(), ""
		}
	}
	return all
}

// idWithPort returns the ID followed by the port.
func (u *unit) idWithPort() string { return u.id + "@" + u.port }

func portKey(resource, id string) string { return resource + " " + id }

// nodeMark returns a string that changes whenever the device is plugged in again. It contains the inode number of the
// device's directory in /sys. If there is no such directory, it contains the inode number of the device's node in /dev.
func (f *finder) nodeMark(n *node) string {
	var st unix.Stat_t
	at := n.sys
	if at == "" {
		at = n.path
	}
	if err := unix.Lstat(f.absolutePath(at), &st); err != nil {
		return n.String() + ";"
	}
	return fmt.Sprintf("%s/%d;", n.number, st.Ino)
}

// slotIDs returns the device IDs of a unit for the Manager: one for each container that may have the unit at the same
// time.
func slotIDs(id string, shared int) []string {
	if shared <= 1 {
		return []string{id}
	}
	out := make([]string, shared)
	for i := range out {
		out[i] = id + slotSeparator + strconv.Itoa(i)
	}
	return out
}

const slotSeparator = "#" // does not occur in IDs

// unitOf returns the unit ID of a slot.
func unitOf(slot string) string {
	id, _, _ := strings.Cut(slot, slotSeparator)
	return id
}

// numberedPath returns the path of a container's i-th device node. It increases the number at the end of the given path
// by i.
func numberedPath(path string, i int) string {
	if i == 0 {
		return path
	}
	stem := strings.TrimRight(path, "0123456789")
	first, err := strconv.Atoi(path[len(stem):])
	if err != nil { // path has no number, or one that is too large
		return path + strconv.Itoa(i)
	}
	return stem + strconv.Itoa(first+i)
}
