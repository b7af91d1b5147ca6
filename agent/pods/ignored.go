package pods

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/admit"
	"github.com/islet-edge/islet/agent/plan"
)

// eventFieldIgnored is the reason of the event that names fields which do not act.
const eventFieldIgnored = "FieldIgnored"

// noteIgnored tells, once for each generation of a pod that may run, which fields of it
// do not act here.
func (p *Pods) noteIgnored(uid types.UID, in plan.Input) {
	if in.Want == nil || !in.Admitted || in.Deleting {
		return
	}
	p.mu.Lock()
	before := p.noted[uid]
	p.noted[uid] = in.Want
	p.mu.Unlock()
	if before == in.Want {
		return
	}
	fields := admit.IgnoredFields(in.Want, p.c.Node())
	if before != nil {
		known := admit.IgnoredFields(before, p.c.Node())
		fields = slices.DeleteFunc(fields, func(f admit.Ignored) bool { return slices.Contains(known, f) })
		fields = append(fields, admit.IgnoredChange(before, in.Want)...)
	}
	if len(fields) > 0 {
		p.c.Events.Pod(in.Want, "", v1.EventTypeWarning, eventFieldIgnored, admit.Sentence(fields))
	}
}
