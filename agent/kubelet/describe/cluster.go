package describe

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/object"
	"github.com/islet-edge/islet/internal/api"
)

// clusterStatus returns the state of the link to the control plane. It computes the field Since from now and the time that
// has elapsed, because the time that the link recorded is wrong if the clock was set later.
func (a *Describer) clusterStatus(now time.Time) *api.Cluster {
	c := a.c.Cluster
	s := c.Link.State()
	out := &api.Cluster{
		Server: c.Link.Client().Host(), Link: string(s.Phase), Since: now.Add(-time.Since(s.DisplaySince)),
		Reason: s.Reason, Message: s.Message, Pending: c.Outbox.Pending(),
	}
	out.ClientCertificate, out.ServingCertificate = c.Link.Expiry()
	return out
}

// maxProblems is the maximum number of object problems in the node's status.
const maxProblems = 10

// objectProblems lists the pods for which objects of the API are missing or cannot be refreshed. While the link is down,
// it lists only missing objects.
func (a *Describer) objectProblems() (out []string) {
	all := a.c.Cluster.Objects.Problems()
	up := a.c.Cluster.Link.State().Phase == link.Up
	left := 0
	for _, p := range all {
		d, ok := a.c.Desired.Get(p.UID)
		switch {
		case !ok || p.Known && !up:
		case len(out) == maxProblems:
			left++
		default:
			out = append(out, fmt.Sprintf("pod %s/%s: %s", d.Pod.Namespace, d.Pod.Name, problemText(p)))
		}
	}
	if left > 0 {
		out = append(out, fmt.Sprintf("and %d more; islet describe POD lists the events of one pod", left))
	}
	return out
}

func problemText(p object.Problem) string {
	if strings.Contains(p.Message, p.Object) {
		return p.Message
	}
	return p.Object + ": " + p.Message
}

// Details returns information about a pod that the Pod object does not contain.
func (a *Describer) Details(uid types.UID) (d api.Details) {
	if a.c.Cluster != nil {
		for _, p := range a.c.Cluster.Objects.Problems() {
			if p.UID != uid {
				continue
			}
			text := problemText(p)
			if p.Known {
				text += " (the last known version is used)"
			}
			d.Problems = append(d.Problems, text)
		}
	}
	d.Origin = a.Origin(uid)
	d.Problems = append(d.Problems, a.c.SlowVolumes(uid)...)
	d.Hooks = failedHooks(a.c.Input(uid).Failed)
	d.Events = eventsOf(a.c.Events.Recent(uid))
	return d
}

// Events returns the stored events of the node and all pods.
func (a *Describer) Events() []api.Event { return eventsOf(a.c.Events.All()) }

func eventsOf(all []v1.Event) (out []api.Event) {
	for _, e := range all {
		_, container, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
		out = append(out, api.Event{Namespace: e.InvolvedObject.Namespace, Pod: podOf(&e), Type: e.Type,
			Reason: e.Reason, Container: container, Message: e.Message, Count: e.Count,
			First: e.FirstTimestamp.Time, Last: e.LastTimestamp.Time})
	}
	return out
}

// podOf returns the name of the pod that an event is about. It is empty for an event of the node.
func podOf(e *v1.Event) string {
	if e.InvolvedObject.Kind != "Pod" {
		return ""
	}
	return e.InvolvedObject.Name
}
