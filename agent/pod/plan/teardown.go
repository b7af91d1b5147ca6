package plan

import (
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/podspec"
)

// leastGrace is the grace period of a container whose turn to stop comes after the end of the pod's grace period. It is the
// kubelet's minimum.
const leastGrace = 2 * time.Second

// teardown stops everything: first all containers but the sidecars, then the
// sidecars, the last one first (KEP-753), then the sandbox. They share the pod's grace
// period, and their preStop hooks run at its beginning, also those of sidecars whose
// turn to stop comes later. A sidecar that ends meanwhile stays ended.
func (p *planner) teardown() {
	p.cancel(RunSandbox, StartContainer, PostStart, Update, Resize)
	if p.Want == nil || p.Deleting || p.End != nil {
		p.cancel(Allocate)
	}
	grace, until := p.remaining()
	for subject, f := range p.Busy { // the grace period was shortened since: a new action ends sooner
		end := f.Since.Add(f.Grace)
		if f.Op == StopContainer && end.After(p.Now.Add(grace)) || f.Op == PreStop && end.After(until) {
			p.Cancel = append(p.Cancel, subject)
		}
	}
	var live []Container
	turn := -1
	for _, c := range p.Seen.Containers {
		if c.Live() {
			live = append(live, c)
			turn = max(turn, p.turn(c.Name))
		}
	}
	for _, c := range live {
		at := p.turn(c.Name)
		switch mine := at == turn || at == anyTime || !p.Now.Before(until); {
		case p.Stopping.IsZero() && mine: // it starts again in another sandbox
			p.stop(c, Action{Grace: p.Grace})
		case p.preStop(c, until):
		case mine:
			p.start(Action{Op: StopContainer, Container: c.Name, ID: c.ID, Grace: grace})
		}
	}
	if len(live) > 0 {
		return
	}
	for _, sb := range p.Seen.Sandboxes {
		if sb.Ready {
			p.start(Action{Op: StopSandbox, ID: sb.ID})
		}
	}
}

// anyTime is the turn of a container that no other one waits for.
const anyTime = -1

// turn returns when a container is stopped: containers with a higher number are stopped first.
func (p *planner) turn(name string) int {
	if p.Want == nil {
		return 0
	}
	for i := range p.Want.Spec.InitContainers {
		if ctr := &p.Want.Spec.InitContainers[i]; ctr.Name == name && podspec.IsSidecar(ctr) {
			return i
		}
	}
	if kind, _ := podspec.Find(&p.Want.Spec, name); kind == podspec.Ephemeral {
		return anyTime
	}
	return len(p.Want.Spec.InitContainers)
}

// remaining returns the rest of the pod's grace period, and when it ends.
func (p *planner) remaining() (time.Duration, time.Time) {
	since := p.Stopping
	if since.IsZero() || since.After(p.Now) {
		since = p.Now
	}
	until := since.Add(p.Grace)
	return max(until.Sub(p.Now), min(leastGrace, p.Grace)), until
}

// remove removes the stopped containers, and then the sandboxes.
func (p *planner) remove() {
	p.cancel(Admit, Ended)
	if p.runs() {
		return
	}
	for _, c := range p.Seen.Containers {
		p.start(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID})
	}
	if len(p.Seen.Containers) > 0 {
		return
	}
	for _, sb := range p.Seen.Sandboxes {
		p.start(Action{Op: RemoveSandbox, ID: sb.ID})
	}
	switch {
	case len(p.Seen.Sandboxes) > 0:
	case !p.Forgotten:
		p.start(Action{Op: Forget})
	default:
		p.Done = len(p.Busy) == 0
	}
}

// ended releases the resources of a pod that has ended and is still wanted. If the node decided its end, and the reason may
// be gone, it then starts another decision.
func (p *planner) ended() {
	p.cancel(Forget)
	if p.runs() {
		return
	}
	if !p.Ended {
		p.start(Action{Op: Ended})
		return
	}
	if p.clears() {
		for _, c := range p.Seen.Containers {
			p.start(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID})
		}
	}
	if p.End != nil && p.Reconsider && !p.Waiting {
		p.start(Action{Op: Admit})
	}
}

// clears reports whether the containers and logs of a pod that has ended are removed: the pod was evicted, mostly because it
// used too much, and its last status is known. A kubelet removes them, too.
func (p *planner) clears() bool { return p.End != nil && p.End.Reason == Evicted && p.End.Phase != "" }

// runs reports whether a container runs, or may, or a sandbox is ready.
func (p *planner) runs() bool {
	ready := func(sb Sandbox) bool { return sb.Ready }
	return slices.ContainsFunc(p.Seen.Sandboxes, ready) || slices.ContainsFunc(p.Seen.Containers, Container.Live)
}

// trim removes containers that no status and no log needs. Of each name it keeps the newest container and as many that have
// ended as Dead says, mostly one.
func (p *planner) trim() {
	for _, c := range p.Seen.Containers {
		newest, _ := p.Seen.Last(c.Name)
		if c.ID == newest.ID || p.keeps(c, newest) {
			continue
		}
		op := RemoveContainer
		if c.Live() {
			op = StopContainer
		}
		p.start(Action{Op: op, Container: c.Name, ID: c.ID, Grace: p.Grace})
	}
}

// keeps reports whether a container that is not the newest, and has ended, stays. At least one stays until the newest runs.
func (p *planner) keeps(c, newest Container) bool {
	if c.State != Exited {
		return false
	}
	most := 1 + p.Dead.More
	if newest.State != Running {
		most = max(most, 1)
	}
	if at := c.FinishedAt.Add(p.Dead.MinAge); p.before(at, p.Dead.MinAge) {
		p.wake(at)
		return true
	}
	newer := 0
	for _, o := range p.Seen.Containers {
		if o.Name == c.Name && o.State == Exited && o.Attempt > c.Attempt {
			newer++
		}
	}
	return newer < most
}
