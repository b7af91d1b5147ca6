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

// notThere is the message of a device that a container has and that is not there.
const notThere = "it is not plugged in"

// publish says which devices there are: those that were found, and those that containers
// have and that are gone. It restarts the containers whose devices are back.
func (h *Hardware) publish() error {
	held := h.c.Manager.Held()
	h.mu.Lock()
	found, before, told := h.found, h.missing, h.told
	h.mu.Unlock()
	news := changes{missing: map[heldDevice]bool{}}
	for i := range found {
		h.compare(h.c.Classes[i].Resource, found[i], held, before, &news)
	}
	h.mu.Lock()
	h.missing, h.told = news.missing, true
	h.mu.Unlock()
	var errs []error
	for i, link := range h.links { // which shows what is missing, and lets containers start
		errs = append(errs, link.Devices(h.devices(found, i, held)))
	}
	if told { // else nobody knows yet what runs
		for _, n := range news.events {
			h.tell(n)
		}
		for _, who := range news.restart {
			h.restart(who)
		}
	}
	h.sweep(held)
	return errors.Join(errs...)
}

// devices lists those of a class.
func (h *Hardware) devices(found [][]*unit, class int, held []devicemanager.Held) (out []devicemanager.Device) {
	c, listed := &h.c.Classes[class], map[string]bool{}
	add := func(d devicemanager.Device) {
		if !listed[d.ID] {
			out, listed[d.ID] = append(out, d), true
		}
	}
	for _, u := range found[class] {
		for _, id := range slots(u.id, c.Shared) {
			add(devicemanager.Device{ID: id, Healthy: true})
		}
	}
	for _, one := range held {
		for _, id := range one.IDs {
			if one.Resource == c.Resource {
				add(devicemanager.Device{ID: id, Message: h.whyNot(found, id)})
			}
		}
	}
	return out
}

// whyNot says why a device is not there for a container that has it.
func (h *Hardware) whyNot(found [][]*unit, slot string) string {
	id := unitOf(slot)
	for i := range found {
		if slices.ContainsFunc(found[i], func(u *unit) bool { return u.id == id }) {
			return "the configuration of the node gives it to " + h.c.Classes[i].Resource + ", or to fewer containers"
		}
	}
	return notThere
}

// changes are what containers are to know.
type changes struct {
	missing map[heldDevice]bool
	events  []notice
	restart []holder
}

type notice struct {
	holder
	kind, reason, message string
}

// compare finds what became of the devices of a resource that containers have.
func (h *Hardware) compare(resource string, found []*unit, held []devicemanager.Held, before map[heldDevice]bool, news *changes) {
	units := map[string]*unit{}
	for _, u := range found {
		units[u.id] = u
	}
	for _, one := range held {
		if one.Resource != resource {
			continue
		}
		who := holder{one.UID, one.Container, resource}
		there, outdated := true, false
		for _, slot := range one.IDs {
			id := unitOf(slot)
			d, u := heldDevice{who, id}, units[id]
			switch {
			case u == nil:
				there, news.missing[d] = false, true
				if !before[d] {
					news.events = append(news.events,
						notice{who, v1.EventTypeWarning, ReasonUnplugged,
							fmt.Sprintf("Device %s of %s is not there any more: the container is restarted once it is back",
								id, resource)})
				}
			case before[d]:
				news.events = append(news.events, notice{who, v1.EventTypeNormal, ReasonBack,
					fmt.Sprintf("Device %s of %s is back", id, resource)})
			}
			outdated = outdated || u != nil && h.memory.outdated(who, id, u.mark)
		}
		if there && outdated {
			news.restart = append(news.restart, who)
		}
	}
}

func (h *Hardware) tell(n notice) {
	if pod := h.c.Pod(n.UID); pod != nil {
		h.c.Events.Pod(pod, n.Container, n.kind, n.reason, n.message)
	}
}

// restart has a container run anew, which it then does with the nodes that there are now.
// One that would stay ended goes on with what it has.
func (h *Hardware) restart(who holder) {
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

// Missing says which devices a pod has that are not there, each as a sentence; none: all
// are.
func (h *Hardware) Missing(uid types.UID) (out []string) {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for d := range h.missing {
		if d.UID == uid {
			out = append(out, fmt.Sprintf("container %s: device %s of %s is not there", d.Container, d.id, d.Resource))
		}
	}
	slices.Sort(out)
	return out
}

// sweep removes the device nodes of containers that have nothing any more.
func (h *Hardware) sweep(held []devicemanager.Held) {
	dirs, _ := list(h.c.Dir) // none: there are none yet
	for _, uid := range dirs {
		if !slices.ContainsFunc(held, func(one devicemanager.Held) bool { return string(one.UID) == uid }) {
			if err := mounts.RemoveAll(filepath.Join(h.c.Dir, uid)); err != nil {
				h.c.Log.Warn("device nodes of a pod that is gone stay", "dir", filepath.Join(h.c.Dir, uid), "error", err)
			}
		}
	}
}

// nodeDir is where the device nodes of a container are.
func (h *Hardware) nodeDir(who holder) (string, error) {
	for _, part := range []string{string(who.UID), who.Container} {
		if !filepath.IsLocal(part) || strings.ContainsRune(part, '/') {
			return "", fmt.Errorf("%q cannot be a directory name", part)
		}
	}
	return filepath.Join(h.c.Dir, string(who.UID), who.Container, strings.ReplaceAll(who.Resource, "/", "_")), nil
}
