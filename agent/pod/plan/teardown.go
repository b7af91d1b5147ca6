package plan

import (
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/podspec"
)

// leastGrace is the time that a container gets if the pod's grace period is over before its
// turn to stop comes. It is the kubelet's minimum.
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
	for subject, f := range p.Busy { // the grace period was cut short meanwhile: what begins anew ends sooner
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
		case p.Stopping.IsZero() && mine: // it starts again elsewhere
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

// anyTime is the turn of a container for which no other waits.
const anyTime = -1

// turn orders the stopping of containers: those with the highest number first.
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

// remaining returns what is left of the pod's grace period, and when it ends.
func (p *planner) remaining() (time.Duration, time.Time) {
	since := p.Stopping
	if since.IsZero() || since.After(p.Now) {
		since = p.Now
	}
	until := since.Add(p.Grace)
	return max(until.Sub(p.Now), min(leastGrace, p.Grace)), until
}

// remove removes what teardown has stopped, containers before sandboxes.
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

// ended gives back what a pod that is over holds though it is still wanted, once
// nothing of it runs; then, if its end was the node's decision and the reason may be
// gone, it asks for another one.
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

// clears reports whether the containers of a pod that is over go, and with them their logs:
// it was evicted, most often because it took too much, and its last status is known. A
// kubelet removes them too.
func (p *planner) clears() bool { return p.End != nil && p.End.Reason == Evicted && p.End.Phase != "" }

// runs reports whether a container runs, or may, or a sandbox is ready.
func (p *planner) runs() bool {
	return slices.ContainsFunc(p.Seen.Sandboxes, func(sb Sandbox) bool { return sb.Ready }) || slices.ContainsFunc(p.Seen.Containers, Container.Live)
}

// trim removes what no status and no log needs: of each name it keeps the
// newest container and of those that have ended as many as Dead says, mostly one.
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

// keeps reports whether an ended container stays that is not the newest. One stays at least
// until the next one runs, which may have to wait for its time.
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
