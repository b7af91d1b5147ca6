package hardware

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/internal/podspec"
)

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
