package plan

import "github.com/islet-edge/islet/internal/keys"

// removePod removes the stopped containers, and after them the sandboxes.
func (p *planner) removePod() {
	p.cancelActions(Admit, Ended)
	if p.isRunning() {
		return
	}
	for _, c := range p.Observed.Containers {
		p.startAction(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID, KeepsLog: true})
	}
	if len(p.Observed.Containers) > 0 {
		return
	}
	for _, sb := range p.Observed.Sandboxes {
		p.startAction(Action{Op: RemoveSandbox, ID: sb.ID})
	}
	switch {
	case len(p.Observed.Sandboxes) > 0:
	case !p.Forgotten:
		p.startAction(Action{Op: Forget})
	default:
		p.Done = len(p.InFlight) == 0
	}
}

// afterEnd releases the resources of a pod that has ended and is still wanted. After that, it starts another
// Admit if the reason for the pod's End may no longer apply.
func (p *planner) afterEnd() {
	p.cancelActions(Forget)
	if p.isRunning() {
		return
	}
	if !p.Ended {
		p.startAction(Action{Op: Ended})
		return
	}
	if p.removesLogs() {
		for _, c := range p.Observed.Containers {
			p.startAction(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID})
		}
	}
	if p.End != nil && p.Reconsider && !p.Waiting {
		p.startAction(Action{Op: Admit})
	}
}

// endInterruption returns the Interruption for the containers that are stopped because the pod ends. It is Replaced if the node ended a pod
// that is not from the API server: the node may admit the pod again, and then restarts its containers. Otherwise endInterruption returns
// zero.
func (p *planner) endInterruption() Interruption {
	if p.End != nil && p.End.Phase == "" && p.Want.Annotations[keys.ConfigSource] != keys.SourceAPI {
		return Replaced
	}
	return 0
}

// removesLogs reports whether the containers and logs of an ended pod must be removed. This is the case for
// an evicted pod whose final status is known, because an evicted pod has usually used too much of a resource.
func (p *planner) removesLogs() bool {
	return p.End != nil && p.End.Reason == Evicted && p.End.Phase != ""
}
