package hardware

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/runtime/mounts"
)

// Reasons of events.
const (
	ReasonUnplugged = "DeviceUnplugged"
	ReasonBack      = "DevicePlugged"
)

// notPluggedIn is the message for a device that is allocated to a container but not present.
const notPluggedIn = "it is not plugged in"

// publishDevices reports two kinds of devices to the Manager: present devices, and absent devices that are allocated to containers. It
// restarts the containers whose devices have new device nodes.
func (h *Hardware) publishDevices() error {
	held := h.c.Manager.Holdings()
	h.mu.Lock()
	found, before, published := h.foundUnits, h.missing, h.published
	h.mu.Unlock()
	changed := scanEffects{missing: map[heldDevice]bool{}}
	for i := range found {
		h.compareDevices(h.c.Classes[i].Resource, found[i], held, before, &changed)
	}
	h.mu.Lock()
	h.missing, h.published = changed.missing, true
	h.mu.Unlock()
	var errs []error
	for i, link := range h.links { // before the restarts, because restarted containers need the new lists
		errs = append(errs, link.Devices(h.classDevices(found, i, held)))
	}
	if published { // during the first call, the running containers are unknown
		for _, n := range changed.events {
			h.recordEvent(n)
		}
		for _, who := range changed.toRestart {
			h.restartContainer(who)
		}
	}
	h.removeStaleDeviceNodes()
	return errors.Join(errs...)
}

// classDevices returns the devices of a class. A present device is healthy. An absent device that is allocated to a container is unhealthy.
func (h *Hardware) classDevices(found [][]*unit, class int, held []devicemanager.Holding) (out []devicemanager.Device) {
	c, listed := &h.c.Classes[class], map[string]bool{}
	add := func(d devicemanager.Device) {
		if !listed[d.ID] {
			out, listed[d.ID] = append(out, d), true
		}
	}
	for _, u := range found[class] {
		for _, id := range slotIDs(u.id, c.Shared) {
			add(devicemanager.Device{ID: id, Healthy: true})
		}
	}
	for _, one := range held {
		for _, id := range one.IDs {
			if one.Resource == c.Resource {
				add(devicemanager.Device{ID: id, Message: h.absentReason(found, id)})
			}
		}
	}
	return out
}

// absentReason returns the reason why a device that is allocated to a container is unavailable.
func (h *Hardware) absentReason(found [][]*unit, slot string) string {
	id := unitOf(slot)
	for i := range found {
		if slices.ContainsFunc(found[i], func(u *unit) bool { return u.id == id }) {
			return "the configuration of the node now assigns it to " + h.c.Classes[i].Resource + ", or to fewer containers"
		}
	}
	return notPluggedIn
}

// removeStaleDeviceNodes removes the device nodes of pods that no longer have devices. A starting container first gets its allocation, and
// then its device nodes. removeStaleDeviceNodes therefore reads the allocations while it holds the lock for the creation of device nodes. A
// list from the beginning of the scan could be outdated.
func (h *Hardware) removeStaleDeviceNodes() {
	h.nodes.Lock()
	defer h.nodes.Unlock()
	dirs, _ := listNames(h.c.Dir) // after an error, the directory counts as empty
	if len(dirs) == 0 {
		return
	}
	held := h.c.Manager.Holdings()
	for _, uid := range dirs {
		if !slices.ContainsFunc(held, func(one devicemanager.Holding) bool { return string(one.UID) == uid }) {
			if err := mounts.RemoveAll(filepath.Join(h.c.Dir, uid)); err != nil {
				h.c.Log.Warn("cannot remove the device nodes of a deleted pod", "dir", filepath.Join(h.c.Dir, uid), "error", err)
			}
		}
	}
}

// deviceNodeDir returns the directory of a container's device nodes.
func (h *Hardware) deviceNodeDir(who holder) (string, error) {
	for _, part := range []string{string(who.UID), who.Container} {
		if !filepath.IsLocal(part) || strings.ContainsRune(part, '/') {
			return "", fmt.Errorf("%q cannot be a directory name", part)
		}
	}
	return filepath.Join(h.c.Dir, string(who.UID), who.Container, strings.ReplaceAll(who.Resource, "/", "_")), nil
}
