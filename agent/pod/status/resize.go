package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/demand"
)

// addSize adds the allocated and the actual resources to the status of a container.
// https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/
func (m *maker) addSize(st *v1.ContainerStatus, ctr *v1.Container, c plan.Container, there bool) {
	if !there {
		return
	}
	st.AllocatedResources = ctr.Resources.Requests
	st.Resources = ctr.Resources.DeepCopy()
	if c.State != plan.Running || plan.ResourcesApplied(m.in, c) && !plan.ResizeNeedsRestart(m.in, c) {
		return
	}
	if c.Resources != nil {
		m.setActual(st.Resources, c)
	}
	for _, old := range [][]v1.ContainerStatus{m.previous.ContainerStatuses, m.previous.InitContainerStatuses} {
		for i := range old { // the kernel does not store memory requests
			if o := &old[i]; o.ContainerID == st.ContainerID && o.Resources != nil {
				replaceQuantity(st.Resources.Requests, v1.ResourceMemory, o.Resources.Requests[v1.ResourceMemory])
			}
		}
	}
}

// setActual replaces allocated resources with the resources that the runtime reports, if these
// differ.
func (m *maker) setActual(r *v1.ResourceRequirements, c plan.Container) {
	want := m.in.Sizes[c.Name]
	if c.Resources.Shares != want.Shares {
		replaceQuantity(r.Requests, v1.ResourceCPU, *resource.NewMilliQuantity((c.Resources.Shares*1000+1023)/1024, resource.DecimalSI))
	}
	if c.Resources.Milli != want.Milli {
		replaceQuantity(r.Limits, v1.ResourceCPU, *resource.NewMilliQuantity(c.Resources.Milli, resource.DecimalSI))
	}
	if c.Resources.Memory != want.Memory {
		replaceQuantity(r.Limits, v1.ResourceMemory, *resource.NewQuantity(c.Resources.Memory, resource.BinarySI))
	}
}

// replaceQuantity changes the value of a resource in the list, or deletes the resource if the value is zero. It does
// not add a resource that is not in the list.
func replaceQuantity(l v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	if _, ok := l[name]; !ok {
		return
	}
	if q.IsZero() {
		delete(l, name)
		return
	}
	l[name] = q
}

// addPodResources adds the allocated and the actual resources of the pod as a whole (KEP-5419). While the pod
// is being resized, the actual resources come from the previous status.
func (m *maker) addPodResources(st *v1.PodStatus) {
	if m.in.End != nil && len(m.in.Observed.Sandboxes) == 0 {
		st.AllocatedResources, st.Resources = m.previous.AllocatedResources, m.previous.Resources
		return
	}
	requests := demand.Requests(m.pod)
	st.AllocatedResources, st.Resources = requests, &v1.ResourceRequirements{}
	if m.previous.Resources != nil && plan.ResizeInProgress(m.in) {
		st.Resources = m.previous.Resources
		return
	}
	limits := demand.Limits(m.pod)
	for name, q := range requests {
		setQuantity(&st.Resources.Requests, name, q, name == v1.ResourceCPU || name == v1.ResourceMemory)
	}
	for name, q := range limits {
		setQuantity(&st.Resources.Limits, name, q, (name == v1.ResourceCPU || name == v1.ResourceMemory) && demand.IsLimited(m.pod, name))
	}
}

func setQuantity(l *v1.ResourceList, name v1.ResourceName, q resource.Quantity, yes bool) {
	if !yes {
		return
	}
	if *l == nil {
		*l = v1.ResourceList{}
	}
	(*l)[name] = q
}

// addResizeConditions adds the conditions for a resize that is pending or in progress.
func (m *maker) addResizeConditions(st *v1.PodStatus) {
	if p := m.in.Pending; p.Reason != "" {
		m.addResize(st, v1.PodCondition{Type: v1.PodResizePending, Reason: p.Reason, Message: p.Message, ObservedGeneration: p.Generation})
	} else if c := m.previousCondition(v1.PodResizePending); c != nil && m.in.Undecided {
		// An earlier agent decided that the resize is pending.
		st.Conditions = append(st.Conditions, *c)
	}
	before := m.previousCondition(v1.PodResizeInProgress)
	if !plan.ResizeInProgress(m.in) && (before == nil || !m.in.Unsure) {
		return
	}
	c := v1.PodCondition{Type: v1.PodResizeInProgress, ObservedGeneration: m.in.Pending.Allocated}
	switch f, failed := m.in.Failed[plan.Key{Op: plan.Resize}]; {
	case failed:
		c.Reason, c.Message = v1.PodReasonError, f.Message
	case before != nil && before.ObservedGeneration == c.ObservedGeneration: // until it is known that the resize is complete
		c.Reason, c.Message = before.Reason, before.Message
	}
	m.addResize(st, c)
}

// addResize adds a condition. The times of the condition change only if the reason in the condition changes.
func (m *maker) addResize(st *v1.PodStatus, c v1.PodCondition) {
	c.Status = v1.ConditionTrue
	now := *toSeconds(m.in.Now)
	c.LastProbeTime, c.LastTransitionTime = now, now
	if old := m.previousCondition(c.Type); old != nil && old.Reason == c.Reason {
		c.LastProbeTime, c.LastTransitionTime = old.LastProbeTime, old.LastTransitionTime
	}
	st.Conditions = append(st.Conditions, c)
}

// previousCondition returns a condition from the previous status, or nil if there was none.
func (m *maker) previousCondition(t v1.PodConditionType) *v1.PodCondition {
	for i := range m.previous.Conditions {
		if m.previous.Conditions[i].Type == t {
			return &m.previous.Conditions[i]
		}
	}
	return nil
}
