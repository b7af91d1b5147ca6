package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// The hooks of containers are separate actions, because they may take any amount of time. A running hook only delays
// the start or stop of its own container.
//
//	StartContainer --> runs --PostStart--> started ... --PreStop--> StopContainer
//	                              |                        |
//	                              '-- failed: stopped      '-- failed, or its time is over: stopped all the same
//
// If the agent restarts before it has stored that a hook has returned, the hook runs again. So each hook runs at
// least once.
// https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/

// PostStartRunning reports whether a container has a postStart hook that has not returned yet.
func PostStartRunning(in Input, c Container) bool { return c.PostStart && !in.Hooked[c.ID] }

// HookFailed reports whether the postStart hook of a container failed. The container is then stopped, and its restart
// policy applies.
func HookFailed(in Input, c Container) bool {
	f, ok := in.Failed[Key{c.Name, PostStart}]
	return ok && f.ID == c.ID
}

// startsWithHook reports whether a container that has a postStart hook is being started or is running the hook.
func (p *planner) startsWithHook(ctr *v1.Container) bool {
	if ctr.Lifecycle == nil || ctr.Lifecycle.PostStart == nil {
		return false
	}
	does := func(a Action) bool { return a.Container == ctr.Name && (a.Op == StartContainer || a.Op == PostStart) }
	if f, busy := p.InFlight[ctr.Name]; busy && does(f.Action) {
		return true
	}
	for _, a := range p.Start {
		if does(a) {
			return true
		}
	}
	return false
}

// dropHooks cancels the hooks of containers that have ended.
func (p *planner) dropHooks() {
	if p.Hold {
		return
	}
	for subject, f := range p.InFlight {
		if f.Op != PostStart && f.Op != PreStop {
			continue
		}
		if c, ok := p.Observed.findContainer(f.ID); !ok || c.State != Running {
			p.Cancel = append(p.Cancel, subject)
		}
	}
}

func (o Observed) findContainer(id string) (Container, bool) {
	for _, c := range o.Containers {
		if c.ID == id {
			return c, true
		}
	}
	return Container{}, false
}

// ranPreStop reports whether the preStop hook of a container has run. The container is then stopped even if
// it is wanted again, because the hook may have shut down the container's program.
func (p *planner) ranPreStop(c Container) bool {
	_, ran := p.PreStopped[c.ID]
	return ran
}

// hasPreStop reports whether a preStop hook has to run before a container is stopped.
func (p *planner) hasPreStop(c Container) bool {
	if p.ranPreStop(c) || c.State != Running || p.Want == nil {
		return false
	}
	_, ctr := podspec.Find(&p.Want.Spec, c.Name)
	return ctr != nil && ctr.Lifecycle != nil && ctr.Lifecycle.PreStop != nil
}

// stopContainer stops a container of a pod that keeps running, after the container's preStop hook. The hook and the
// container share the grace period of the action. If the hook has used all of it, the container gets
// leastGrace. Without a grace period no hook runs, as with a kubelet.
func (p *planner) stopContainer(c Container, a Action) {
	if f, busy := p.InFlight[c.Name]; busy && f.Op == PostStart {
		p.Cancel = append(p.Cancel, c.Name)
	}
	a.Op, a.Container, a.ID = StopContainer, c.Name, c.ID
	if a.Grace > 0 && p.hasPreStop(c) {
		a.Op = PreStop
	} else {
		a.Grace = p.graceAfterHook(c, a.Grace)
	}
	p.startAction(a)
}

// preStop starts the preStop hook of a container whose pod is ending. It returns false if there is no hook to run or
// no time left.
func (p *planner) preStop(c Container, until time.Time, why Interruption) bool {
	if !p.hasPreStop(c) || !p.Now.Before(until) {
		return false
	}
	p.startAction(Action{Op: PreStop, Container: c.Name, ID: c.ID, Grace: until.Sub(p.Now), Interrupts: why})
	return true
}
