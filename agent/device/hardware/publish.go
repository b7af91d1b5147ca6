package hardware

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/runtime/mounts"
)

// Reasons of events.
const (
	ReasonUnplugged = "DeviceUnplugged"
	ReasonBack      = "DevicePlugged"
)

// notPluggedIn is the message for an absent device that a container has.
const notPluggedIn = "it is not plugged in"

// publishDevices reports the present devices to the Manager, and the absent devices that containers have. It restarts the
// containers whose devices have new nodes.
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
	if published { // during the first call the running containers are not known yet
		for _, n := range changed.events {
			h.recordEvent(n)
		}
		for _, who := range changed.toRestart {
			h.restartContainer(who)
		}
	}
	h.removeOldNodes()
	return errors.Join(errs...)
}

// classDevices returns the devices of a class. Present devices are healthy, and absent devices that containers have are
// unhealthy.
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

// absentReason returns the reason why a container's device is not available.
func (h *Hardware) absentReason(found [][]*unit, slot string) string {
	id := unitOf(slot)
	for i := range found {
		if slices.ContainsFunc(found[i], func(u *unit) bool { return u.id == id }) {
			return "the configuration of the node now assigns it to " + h.c.Classes[i].Resource + ", or to fewer containers"
		}
	}
	return notPluggedIn
}

// scanEffects contains the effects of a scan on containers.
type scanEffects struct {
	missing   map[heldDevice]bool
	events    []podEvent
	toRestart []holder
}

type podEvent struct {
	holder
	kind, reason, message string
}

// compareDevices compares the containers' devices of one resource with the units that are present. It adds the effects
// on the containers to the parameter changed.
func (h *Hardware) compareDevices(resource string, found []*unit, held []devicemanager.Holding, before map[heldDevice]bool,
	changed *scanEffects) {
	units := map[string]*unit{}
	for _, u := range found {
		units[u.id] = u
	}
	for _, one := range held {
		if one.Resource != resource {
			continue
		}
		who := holder{one.UID, one.Container, resource}
		present, outdated := true, false
		for _, slot := range one.IDs {
			id := unitOf(slot)
			d, u := heldDevice{who, id}, units[id]
			switch {
			case u == nil:
				present, changed.missing[d] = false, true
				if !before[d] {
					changed.events = append(changed.events,
						podEvent{who, v1.EventTypeWarning, ReasonUnplugged,
							fmt.Sprintf("Device %s of %s was unplugged: the container is restarted when the device is plugged in again",
								id, resource)})
				}
			case before[d]:
				changed.events = append(changed.events, podEvent{who, v1.EventTypeNormal, ReasonBack,
					fmt.Sprintf("Device %s of %s is plugged in again", id, resource)})
			}
			outdated = outdated || u != nil && h.history.isOutdated(who, id, u.mark)
		}
		if present && outdated {
			changed.toRestart = append(changed.toRestart, who)
		}
	}
}

func (h *Hardware) recordEvent(n podEvent) {
	if pod := h.c.Pod(n.UID); pod != nil {
		h.c.Events.Pod(pod, n.Container, n.kind, n.reason, n.message)
	}
}

// restartContainer restarts a container, so that it gets the present nodes. It does nothing if the container's restart policy
// would not start the container again.
func (h *Hardware) restartContainer(who holder) {
	pod := h.c.Pod(who.UID)
	if pod == nil || pod.DeletionTimestamp != nil {
		return
	}
	for _, c := range podspec.Containers(&pod.Spec) {
		policy := pod.Spec.RestartPolicy
		if c.RestartPolicy != nil {
			policy = v1.RestartPolicy(*c.RestartPolicy)
		}
		if c.Name != who.Container || policy != v1.RestartPolicyAlways && policy != "" {
			continue
		}
		grace := int64(v1.DefaultTerminationGracePeriodSeconds)
		if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
			grace = *g
		}
		h.c.Restart(who.UID, who.Container, time.Duration(grace)*time.Second)
	}
}

// MissingDevices returns a sentence for each absent device of a pod.
func (h *Hardware) MissingDevices(uid types.UID) (out []string) {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for d := range h.missing {
		if d.UID == uid {
			out = append(out, fmt.Sprintf("container %s: device %s of %s is absent", d.Container, d.id, d.Resource))
		}
	}
	slices.Sort(out)
	return out
}

// removeOldNodes removes the device nodes of pods that no longer have devices. A starting container gets its devices before its device
// nodes. So removeOldNodes reads the devices of pods while it holds the lock for creating nodes. A list from the beginning of the scan may
// be old.
func (h *Hardware) removeOldNodes() {
	h.nodes.Lock()
	defer h.nodes.Unlock()
	dirs, _ := listNames(h.c.Dir) // if this fails, the directory is empty
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

// nodeDir returns the directory of a container's device nodes.
func (h *Hardware) nodeDir(who holder) (string, error) {
	for _, part := range []string{string(who.UID), who.Container} {
		if !filepath.IsLocal(part) || strings.ContainsRune(part, '/') {
			return "", fmt.Errorf("%q cannot be a directory name", part)
		}
	}
	return filepath.Join(h.c.Dir, string(who.UID), who.Container, strings.ReplaceAll(who.Resource, "/", "_")), nil
}
