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

// What one of a resource is, as EdgeConfiguration has it.
const (
	unitNode   = "node"
	unitDevice = "device"
	unitAll    = "all"
)

// A unit is what one of a resource is: one or more device nodes.
type unit struct {
	id    string
	port  string // of its USB device, where the ID does not have it
	nodes []*node
	mark  string // of its nodes: another after each time that one was plugged in
}

// units makes those of a class of its nodes. Ports has the devices that containers were
// started with, by resource and ID, and where they were: of several with one serial number
// the one that was there has the plain ID, the others have the port in theirs, and keep it
// also when they are alone.
func (f *finder) units(c *config.DeviceClass, nodes []*node, ports map[string]string) []*unit {
	byKey := map[[2]string]*unit{}
	for _, n := range nodes {
		who := f.identify(n)
		key := [2]string{who.id, who.port}
		switch c.Unit {
		case unitDevice:
			key[0] = who.hard
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
		if _, known := ports[portKey(c.Resource, u.at())]; known && u.port != "" {
			u.id, u.port = u.at(), ""
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
			all[i].id, all[i].port = all[i].at(), ""
		}
	}
	return all
}

// at is the ID with the port.
func (u *unit) at() string { return u.id + "@" + u.port }

func portKey(resource, id string) string { return resource + " " + id }

// mark tells one plugging in of a device from another: the kernel numbers the directories
// that it makes in /sys, and the nodes in /dev.
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

// slots are the IDs of the devices that a unit is to those who give it to containers: as
// many as may have it at a time.
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

const slotMark = "#" // no ID has it

// unitOf undoes slots.
func unitOf(slot string) string {
	id, _, _ := strings.Cut(slot, slotMark)
	return id
}

// numbered is the path of the i-th node in a container: the number at its end counts up.
func numbered(path string, i int) string {
	if i == 0 {
		return path
	}
	stem := strings.TrimRight(path, "0123456789")
	first, err := strconv.Atoi(path[len(stem):])
	if err != nil { // none, or one that is not meant to count
		return path + strconv.Itoa(i)
	}
	return stem + strconv.Itoa(first+i)
}
