package plan

import (
	"maps"
	"math/bits"
	"slices"
	"time"
)

// finish makes the action on a subject succeed.
func (w *world) finish(subject string) {
	a := w.in.InFlight[subject].Action
	w.relist()
	w.preStopped(w.in.InFlight[subject])
	w.slept(w.in.InFlight[subject].Action)
	delete(w.in.InFlight, subject)
	delete(w.in.Failed, Key{subject, a.Op})
	w.happen(a, Running)
	w.resized(a, true)
	switch a.Op { // only the worker knows these effects
	case RunSandbox, Update:
		w.applied = a.Hash
	case Ended:
		w.in.Ended = true
	case Unmount:
		w.in.Unmounted = true
	case Forget:
		w.in.Forgotten, w.applied = true, ""
		clear(w.in.Failed)
		w.in.PreStopped = map[string]time.Duration{}
	}
}

// fail makes the action on a subject fail. Some of the failed actions have an effect.
func (w *world) fail(subject string, how int) {
	a := w.in.InFlight[subject].Action
	w.relist()
	w.preStopped(w.in.InFlight[subject])
	w.slept(w.in.InFlight[subject].Action)
	delete(w.in.InFlight, subject)
	k := Key{subject, a.Op}
	n := w.in.Failed[k].N + 1
	f := Failure{N: n, Hash: a.Hash, ID: a.Target, At: w.in.Now, Retry: w.in.Now.Add(RetryDelay(n))}
	if a.Op == PostStart {
		f.ID, f.Retry = a.ID, time.Time{}
	}
	w.in.Failed[k] = f
	w.resized(a, false)
	switch how % 4 {
	case 0: // the agent was killed between create and start, or the start failed; a resize was partly applied
		if a.Op == StartContainer || a.Op == Resize {
			w.happen(a, Created)
		}
	case 1: // the action succeeded, but the response was lost
		w.happen(a, Running)
	case 2: // another runtime reports a container that did not start as an exited one
		if w.remote && a.Op == StartContainer {
			w.happen(a, Exited)
		}
	}
}

// This helper applies the effect of an action.
func (w *world) happen(a Action, state State) {
	switch a.Op {
	case Admit:
		w.in.Admitted, w.in.End, w.in.Reconsider = !w.refuse, nil, false
		if w.refuse {
			w.in.End = &End{Reason: "OutOfcpu"}
		}
	case Ended:
		w.held["running"], w.held["mounted"] = false, false
	case Unmount:
		w.held["mounted"] = false
	case Forget:
		w.in.Admitted, w.in.End = false, nil
		clear(w.held)
		w.prepared = nil
	case RunSandbox:
		w.prepare(a)
		w.in.Observed.Sandboxes = append(slices.Clone(w.in.Observed.Sandboxes), Sandbox{ID: w.id(), Attempt: a.Attempt, Ready: true, CreatedAt: w.in.Now, Hash: a.Hash})
		w.sandbox = max(w.sandbox, int(a.Attempt))
	case Allocate:
		w.grant()
	case Resize:
		w.resize(a, state == Running)
	case StopSandbox:
		w.stopSandboxes(func(s Sandbox) bool { return s.ID == a.ID })
		w.takesAlong(a.ID, false)
	case RemoveSandbox:
		w.removeSandbox(a.ID)
	case StartContainer:
		w.startContainer(a, state)
	case PostStart:
		if c := find(w.in.Observed, a.ID); c != nil {
			w.in.Hooked = maps.Clone(w.in.Hooked)
			w.in.Hooked[a.ID] = true
		}
	case StopContainer: // half of the containers exit with code 0
		w.exitFor(a.ID, []int32{0, 137}[bits.OnesCount8(a.ID[len(a.ID)-1])&1], "Error")
	case RemoveContainer:
		w.vanish(a.ID)
	}
}

func (w *world) startContainer(a Action, state State) {
	sb, _ := w.in.Observed.Sandbox()
	if !sb.Ready {
		return
	}
	w.prepare(a)
	for i, c := range w.in.Observed.Containers { // a repeated creation succeeds
		if c.Name == a.Container && c.Attempt == a.Attempt {
			if c.State == Created && state == Running {
				w.in.Observed.Containers = slices.Clone(w.in.Observed.Containers)
				w.in.Observed.Containers[i].State, w.in.Observed.Containers[i].StartedAt = Running, w.in.Now
			}
			return
		}
	}
	c := Container{ID: w.id(), Name: a.Container, SandboxID: sb.ID, Attempt: a.Attempt, Streak: a.Streak, Round: a.Round, Hash: a.Hash, PostStart: hooks(w.in.Want, a.Container).PostStart != nil, Image: "as it was", State: state, CreatedAt: w.in.Now}
	switch state {
	case Running:
		c.StartedAt = w.in.Now
	case Exited:
		c.ExitCode, c.FinishedAt = 128, w.in.Now
	}
	if size, ok := w.begun[a.Container].sizes[a.Container]; ok {
		c.Resources, c.RestartResources = &size.Resources, size.RestartResources
		w.created(c.ID, size.MemoryRequest)
	}
	w.in.Observed.Containers = append(slices.Clone(w.in.Observed.Containers), c)
	if c.Name == "s0" || c.Name == "c0" { // s0 and c0 have probes; some sidecars take time to start
		started := c.Name == "c0" || w.nextID%3 > 0
		w.in.Health = maps.Clone(w.in.Health)
		w.in.Health[c.ID] = Health{Started: started, Ready: started}
	}
	w.attempts[a.Container] = max(w.attempts[a.Container], int(a.Attempt))
}

func (w *world) stopSandboxes(which func(Sandbox) bool) {
	w.in.Observed.Sandboxes = slices.Clone(w.in.Observed.Sandboxes)
	for i := range w.in.Observed.Sandboxes {
		if which(w.in.Observed.Sandboxes[i]) {
			w.in.Observed.Sandboxes[i].Ready = false
		}
	}
}

func (w *world) exit(id string, code int32) {
	w.exitFor(id, code, slices.Concat([]string{"Error", "Error"}, lostReasons)[w.nextID%4])
}

func (w *world) exitFor(id string, code int32, reason string) {
	w.in.Observed.Containers = slices.Clone(w.in.Observed.Containers)
	for i := range w.in.Observed.Containers {
		if c := &w.in.Observed.Containers[i]; c.ID == id && c.MayRun() {
			w.in.Now = w.in.Now.Add(time.Microsecond) // containers end one after the other
			c.State, c.ExitCode, c.FinishedAt, c.Reason = Exited, code, w.in.Now, reason
			w.over = w.over && !(c.Name[0] == 's' && endedWithShim(*c)) // it may have ended together with the main containers
		}
	}
}
