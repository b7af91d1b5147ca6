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

// The kinds of units in EdgeConfiguration.
const (
	unitNode   = "node"
	unitDevice = "device"
	unitAll    = "all"
)

// A unit is one allocatable unit of a resource: one or more device nodes.
type unit struct {
	id    string
	port  string // of its USB device, if the ID does not contain it
	nodes []*node
	mark  string // of its nodes: it changes whenever one is plugged in
}

// units groups the nodes of a class into units. ports contains the ports of the devices with
// which containers were started, by resource and ID. If several devices have the same serial
// number, the one at the recorded port gets the plain ID. The others get IDs with their port,
// and keep them also when they are alone.
func (f *finder) units(c *config.DeviceClass, nodes []*node, ports map[string]string) []*unit {
	byKey := map[[2]string]*unit{}
	for _, n := range nodes {
		who := f.identify(n)
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
		u.mark += f.mark(n)
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
		return natural(a.id+" "+a.port, b.id+" "+b.port)
	})
	for i := len(all) - 1; i > 0; i-- {
		if all[i].id == all[i-1].id {
			all[i].id, all[i].port = all[i].idWithPort(), ""
		}
	}
	return all
}

// idWithPort returns the ID with the port.
func (u *unit) idWithPort() string { return u.id + "@" + u.port }

func portKey(resource, id string) string { return resource + " " + id }

// mark returns a string that changes whenever the device is plugged in again: it contains the
// inode number of the device's directory in /sys, or of its node in /dev.
func (f *finder) mark(n *node) string {
	var st unix.Stat_t
	at := n.sys
	if at == "" {
		at = n.path
	}
	if err := unix.Lstat(f.at(at), &st); err != nil {
		return n.String() + ";"
	}
	return fmt.Sprintf("%s/%d;", n.number, st.Ino)
}

// slots returns the device IDs of a unit for the Manager: one for each container that may have
// the unit at a time.
func slots(id string, shared int) []string {
	if shared <= 1 {
		return []string{id}
	}
	out := make([]string, shared)
	for i := range out {
		out[i] = id + slotMark + strconv.Itoa(i)
	}
	return out
}

const slotMark = "#" // IDs do not contain it

// unitOf returns the ID of the unit of a slot.
func unitOf(slot string) string {
	id, _, _ := strings.Cut(slot, slotMark)
	return id
}

// numberedPath returns the path of the i-th node in a container: path with the number at its end
// increased by i.
func numberedPath(path string, i int) string {
	if i == 0 {
		return path
	}
	stem := strings.TrimRight(path, "0123456789")
	first, err := strconv.Atoi(path[len(stem):])
	if err != nil { // no number, or one that is too large
		return path + strconv.Itoa(i)
	}
	return stem + strconv.Itoa(first+i)
}
