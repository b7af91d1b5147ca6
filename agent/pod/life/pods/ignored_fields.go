package pods

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/pod/spec/allocate"
)

// eventFieldIgnored is the reason in the event that lists the fields of a pod that have no effect.
const eventFieldIgnored = "FieldIgnored"

// recordVersion handles a new version of an admitted pod. It records the event about fields that have no
// effect on this node, and counts the requested resizes.
func (p *Pods) recordVersion(uid types.UID, in plan.Input) {
	d, ok := p.c.Desired.Get(uid)
	if !ok || !isCurrent(in, d) || !in.Admitted || in.Deleting {
		return
	}
	p.mu.Lock()
	before := p.recordedVersions[uid]
	p.recordedVersions[uid] = d.Pod
	p.mu.Unlock()
	if before == d.Pod {
		return
	}
	fields := admit.IgnoredFields(d.Pod, p.c.Node())
	if before != nil {
		known := map[admit.IgnoredField]bool{}
		for _, f := range admit.IgnoredFields(before, p.c.Node()) {
			known[f] = true
		}
		fields = slices.DeleteFunc(fields, func(f admit.IgnoredField) bool { return known[f] })
		for _, r := range allocate.Requests(&before.Spec, &d.Pod.Spec) {
			p.c.Resizes.CountRequested(r.Resource, r.Requirement, r.Operation)
		}
	}
	if len(fields) > 0 {
		p.c.Events.Pod(in.Want, "", v1.EventTypeWarning, eventFieldIgnored, admit.DescribeIgnored(fields))
	}
}
