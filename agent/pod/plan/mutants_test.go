package plan

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// mutants contains planners with one mistake each.
var mutants = map[string]func(Input, *Decision){
	"spins": func(in Input, d *Decision) {
		if !d.Wake.IsZero() {
			d.Wake = in.Now
		}
	},
	"sleeps for ever": func(in Input, d *Decision) {
		if !d.Wake.IsZero() {
			d.Wake = in.Now.Add(1000 * time.Hour)
		}
	},
	"done too soon": func(in Input, d *Decision) { d.Done = d.Done || in.Want == nil && len(in.Observed.Containers) == 0 },
	"touches orphans": func(in Input, d *Decision) {
		in.Hold = false
		*d = Decide(in)
	},
	"ignores running actions": func(in Input, d *Decision) {
		in.InFlight = nil
		*d = Decide(in)
	},
	"does not wait after failures": func(in Input, d *Decision) {
		in.Failed = nil
		*d = Decide(in)
	},
	"ignores a stale sandbox": func(in Input, d *Decision) {
		in.Stale = ""
		*d = Decide(in)
	},
	"stops a stale sandbox under its containers": func(in Input, d *Decision) {
		if sb, _ := in.Observed.Sandbox(); sb.ID == in.Stale && sb.Ready && len(d.Start) > 0 {
			d.Start = []Action{{Op: StopSandbox, ID: sb.ID}}
		}
	},
	"starts containers of a pod that is deleted": func(in Input, d *Decision) {
		if in.Want != nil && in.Deleting {
			in.Deleting = false
			*d = Decide(in)
		}
	},
	"does not wait for the predecessor": func(in Input, d *Decision) {
		in.Waiting = false
		*d = Decide(in)
	},
	"trusts a lost sandbox": func(in Input, d *Decision) {
		in.Observed.Sandboxes = slices.Clone(in.Observed.Sandboxes)
		for i := range in.Observed.Sandboxes {
			in.Observed.Sandboxes[i].Ready = true
		}
		*d = Decide(in)
	},
	"uses a sandbox attempt twice": func(_ Input, d *Decision) { forEachAction(d, RunSandbox, func(a *Action) { a.Attempt = 0 }) },
	"leaves containers in a lost sandbox": func(in Input, d *Decision) {
		if sb, ok := in.Observed.Sandbox(); ok && !sb.Ready {
			in.Observed.Containers = slices.DeleteFunc(slices.Clone(in.Observed.Containers), Container.MayRun)
			*d = Decide(in)
		}
	},
	"repeats a stop": func(in Input, d *Decision) {
		for subject, f := range in.InFlight {
			if f.Op == StopContainer && !in.Stopping.IsZero() && f.Since.Add(f.Grace).After(in.Stopping.Add(in.Grace+leastGrace)) && !slices.Contains(d.Cancel, subject) {
				d.Cancel = append(d.Cancel, subject)
			}
		}
	},
	"gives too much grace": func(_ Input, d *Decision) {
		forEachAction(d, StopContainer, func(a *Action) { a.Grace += time.Minute })
	},
	"does not unmount at a shutdown": func(_ Input, d *Decision) {
		d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Op == Unmount })
	},
	"kills containers at once": func(in Input, d *Decision) {
		forEachAction(d, StopContainer, func(a *Action) { a.Grace = min(a.Grace, in.Grace) })
	},
	"stops sidecars with the rest": func(in Input, d *Decision) {
		if in.Deleting && in.Want != nil {
			p := *in.Want
			p.Spec.InitContainers = nil
			in.Want = &p
			*d = Decide(in)
		}
	},
	"removes running containers": func(_ Input, d *Decision) {
		forEachAction(d, StopContainer, func(a *Action) { a.Op = RemoveContainer })
	},
	"keeps no dead container": func(in Input, d *Decision) {
		for _, c := range in.Observed.Containers {
			if _, busy := in.InFlight[c.Name]; c.State == Exited && !busy && len(d.Start) == 0 && len(in.InFlight) == 0 && !in.Hold {
				d.Start = append(d.Start, Action{Op: RemoveContainer, Container: c.Name, ID: c.ID})
				return
			}
		}
	},
	"stops the sandbox first": func(in Input, d *Decision) {
		if sb, ok := in.Observed.Sandbox(); ok && sb.Ready && in.Deleting && len(in.InFlight) == 0 {
			d.Start = []Action{{Op: StopSandbox, ID: sb.ID}}
		}
	},
	"removes sandboxes with their containers": func(in Input, d *Decision) {
		in.Observed.Containers = nil
		if in.Want == nil && len(in.InFlight) == 0 {
			*d = Decide(in)
		}
	},
	"ignores the observed containers": func(in Input, d *Decision) {
		in.Observed.Containers = nil
		if in.Want != nil && !in.Deleting && len(in.InFlight) == 0 {
			*d = Decide(in)
		}
	},
	"uses a container attempt twice": func(_ Input, d *Decision) {
		forEachAction(d, StartContainer, func(a *Action) { a.Attempt = max(a.Attempt, 1) - 1 })
	},
	"restarts against the policy": func(in Input, d *Decision) {
		if in.Want != nil {
			p := *in.Want
			p.Spec.RestartPolicy = v1.RestartPolicyAlways
			in.Want = &p
			*d = Decide(in)
		}
	},
	"does not back off": func(in Input, d *Decision) {
		in.Observed.Containers = slices.Clone(in.Observed.Containers)
		for i := range in.Observed.Containers {
			in.Observed.Containers[i].FinishedAt = in.Observed.Containers[i].FinishedAt.Add(-time.Hour)
		}
		*d = Decide(in)
	},
	"does not count crashes": func(_ Input, d *Decision) { forEachAction(d, StartContainer, func(a *Action) { a.Streak = 0 }) },
	"counts exits that the node caused as crashes": func(in Input, d *Decision) {
		forEachAction(d, StartContainer, func(a *Action) {
			if c, ok := in.Observed.Newest(a.Container); ok && endedWithShim(c) {
				a.Streak = c.Streak + 1
			}
		})
	},
	"counts over a restart of the machine": func(in Input, d *Decision) {
		forEachAction(d, StartContainer, func(a *Action) {
			if c, ok := in.Observed.Newest(a.Container); ok && c.State == Exited && a.Streak == 0 {
				a.Streak = nextStreak(c)
			}
		})
	},
	"skips init containers": func(in Input, d *Decision) {
		if in.Want != nil {
			p := *in.Want
			p.Spec.InitContainers = nil
			in.Want = &p
			*d = Decide(in)
		}
	},
	"never trims": func(in Input, d *Decision) {
		if in.Want != nil && !in.Deleting {
			d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Op == RemoveContainer })
		}
	},
	"never removes sandboxes": func(_ Input, d *Decision) {
		d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Op == RemoveSandbox })
	},
	"never cancels": func(_ Input, d *Decision) { d.Cancel = nil },
	"ignores probes": func(in Input, d *Decision) {
		in.Health = nil
		*d = Decide(in)
	},
	"does not wait for startup probes": func(in Input, d *Decision) {
		in.Health = maps.Clone(in.Health)
		for id, h := range in.Health {
			h.Started = true
			in.Health[id] = h
		}
		*d = Decide(in)
	},
	"ignores the grace of probes": func(in Input, d *Decision) {
		forEachAction(d, StopContainer, func(a *Action) {
			if in.Health[a.ID].Unhealthy {
				a.Grace = in.Grace
			}
		})
	},
	"does not restart a container whose probe failed": func(_ Input, d *Decision) { forEachAction(d, StopContainer, func(a *Action) { a.Interrupts = 0 }) },
	"ignores new definitions": func(in Input, d *Decision) {
		in.Observed.Containers = slices.Clone(in.Observed.Containers)
		for i := range in.Observed.Containers {
			in.Observed.Containers[i].Hash = ""
		}
		*d = Decide(in)
	},
	"replaces containers without a hash": func(in Input, d *Decision) {
		in.Observed.Containers = slices.Clone(in.Observed.Containers)
		for i, c := range in.Observed.Containers {
			if c.Hash == "" {
				in.Observed.Containers[i].Hash = "none"
			}
		}
		*d = Decide(in)
	},
	"replaces init containers": func(in Input, d *Decision) {
		for _, c := range in.Observed.Containers {
			if in.Want != nil && c.Name[0] == 'i' && c.State == Running && len(in.InFlight)+len(d.Start) == 0 && !in.Hold && DefinitionChanged(definition(in.Want, c.Name), c) {
				d.Start = append(d.Start, Action{Op: StopContainer, Container: c.Name, ID: c.ID, Grace: in.Grace, Hash: "new"})
			}
		}
	},
	"restarts containers that were not replaced": func(in Input, d *Decision) {
		in.Interrupted = map[string]Interruption{}
		for _, c := range in.Observed.Containers {
			in.Interrupted[c.ID] = Replaced
		}
		*d = Decide(in)
	},
	"lets an interrupted container go on": func(in Input, d *Decision) {
		in.Interrupted = maps.Clone(in.Interrupted)
		for _, c := range in.Observed.Containers {
			if c.MayRun() {
				delete(in.Interrupted, c.ID)
			}
		}
		*d = Decide(in)
	},
	"does not restart replaced containers": func(in Input, d *Decision) {
		in.Interrupted = nil
		*d = Decide(in)
	},
	"goes on with an old definition": func(in Input, d *Decision) {
		if in.Want != nil && !in.Deleting && in.End == nil && !DeadlineExpired(in) && !IsFinished(in) {
			d.Cancel = nil
		}
	},
	"starts an old definition": func(_ Input, d *Decision) { forEachAction(d, StartContainer, func(a *Action) { a.Hash = "old" }) },
	"counts the crashes of an old definition": func(_ Input, d *Decision) {
		forEachAction(d, StartContainer, func(a *Action) { a.Streak = max(a.Streak, a.Attempt) })
	},
	"does not wait for a verdict": func(in Input, d *Decision) {
		in.Admitted = true
		*d = Decide(in)
	},
	"asks for a verdict again": func(in Input, d *Decision) {
		if in.Want != nil && in.Admitted && isIdle(in, d) {
			d.Start = []Action{{Op: Admit}}
		}
	},
	"admits a pod while its predecessor exists": func(in Input, d *Decision) {
		if in.Want != nil && in.Waiting && isIdle(in, d) {
			d.Start = []Action{{Op: Admit}}
		}
	},
	"does not reconsider": func(in Input, d *Decision) {
		if in.Reconsider {
			d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Op == Admit })
		}
	},
	"does not tell the hooks of the end": func(_ Input, d *Decision) {
		d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Op == Ended })
	},
	"tells the hooks of an end that is none": func(in Input, d *Decision) {
		if in.Want != nil && !in.Deleting && in.End == nil && isIdle(in, d) {
			d.Start = []Action{{Op: Ended}}
		}
	},
	"tells the hooks of the end too early": func(in Input, d *Decision) {
		if in.End != nil && !in.Ended && len(in.InFlight) == 0 && !in.Hold {
			d.Start = []Action{{Op: Ended}}
		}
	},
	"tells the hooks of the same end again": func(in Input, d *Decision) {
		in.Ended = false
		*d = Decide(in)
	},
	"forgets too early": func(in Input, d *Decision) {
		if in.Deleting && len(in.InFlight) == 0 && !in.Hold {
			d.Start = []Action{{Op: Forget}}
		}
	},
	"never forgets": func(in Input, d *Decision) {
		in.Forgotten = true
		*d = Decide(in)
	},
	"forgets again": func(in Input, d *Decision) {
		in.Forgotten = false
		*d = Decide(in)
	},
	"forgets a desired pod": func(in Input, d *Decision) {
		if f, busy := in.InFlight[""]; busy && f.Op == Forget {
			d.Cancel = nil
		}
	},
	"does not cancel an admission or an end": func(in Input, d *Decision) {
		if f, busy := in.InFlight[""]; busy && (f.Op == Admit || f.Op == Ended) {
			d.Cancel = nil
		}
	},
	"ignores a shutdown of the machine": func(in Input, d *Decision) {
		in.ShutdownSince = time.Time{}
		*d = Decide(in)
	},
	"takes a stop of the machine for the end of the program": func(_ Input, d *Decision) {
		for i := range d.Start {
			if d.Start[i].Interrupts == CutOff {
				d.Start[i].Interrupts = 0
			}
		}
	},
	"takes a container that never restarts for one that was replaced": func(_ Input, d *Decision) {
		for i := range d.Start {
			if d.Start[i].Interrupts == CutOff {
				d.Start[i].Interrupts = Replaced
			}
		}
	},
	"removes pods with the machine's end": func(in Input, d *Decision) {
		if !in.ShutdownSince.IsZero() && in.Want != nil && in.End == nil {
			in.Deleting = true
			*d = Decide(in)
		}
	},
	"does not update": func(_ Input, d *Decision) {
		d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Op == Update })
	},
	"updates for nothing": func(in Input, d *Decision) {
		if in.Spec != "" {
			in.Applied = "another"
			*d = Decide(in)
		}
	},
	"goes on with an old update": func(in Input, d *Decision) {
		if f, busy := in.InFlight[""]; busy && f.Op == Update && in.Want != nil && !in.Deleting && in.End == nil {
			d.Cancel = nil
		}
	},
	"runs a sandbox of an old spec": func(_ Input, d *Decision) { forEachAction(d, RunSandbox, func(a *Action) { a.Hash = "old" }) },
	"runs postStart hooks again": func(in Input, d *Decision) {
		in.Hooked = nil
		*d = Decide(in)
	},
	"does not wait for postStart hooks": func(in Input, d *Decision) {
		in.Hooked = map[string]bool{}
		for _, c := range in.Observed.Containers {
			in.Hooked[c.ID] = true
		}
		*d = Decide(in)
	},
	"does not see that a postStart hook failed": func(in Input, d *Decision) {
		in.Failed = maps.Clone(in.Failed)
		maps.DeleteFunc(in.Failed, func(k Key, _ Failure) bool { return k.Op == PostStart })
		*d = Decide(in)
	},
	"starts main containers beside a hook": func(in Input, d *Decision) {
		if in.Want != nil {
			in.Want = in.Want.DeepCopy()
			for _, ctr := range podspec.Containers(&in.Want.Spec) {
				ctr.Lifecycle = nil
			}
			*d = Decide(in)
		}
	},
	"skips preStop hooks": func(in Input, d *Decision) {
		in.PreStopped = map[string]time.Duration{}
		for _, c := range in.Observed.Containers {
			in.PreStopped[c.ID] = 0
		}
		*d = Decide(in)
	},
	"runs preStop hooks again": func(in Input, d *Decision) {
		in.PreStopped = nil
		*d = Decide(in)
	},
	"gives preStop hooks too much time": func(_ Input, d *Decision) { forEachAction(d, PreStop, func(a *Action) { a.Grace += time.Second }) },
	"does not cancel the preStop hook of an exited container": func(in Input, d *Decision) {
		d.Cancel = slices.DeleteFunc(slices.Clone(d.Cancel), func(s string) bool { return in.InFlight[s].Op == PreStop })
	},
	"restarts ephemeral containers": func(in Input, d *Decision) {
		if c, ok := in.Observed.Newest("e0"); ok && c.State == Exited && in.Want != nil && !in.Deleting && in.End == nil && isIdle(in, d) {
			if sb, _ := in.Observed.Sandbox(); sb.Ready && sb.ID != in.Stale && in.Admitted {
				d.Start = []Action{{Op: StartContainer, Container: "e0", Attempt: c.Attempt + 1, Round: CurrentRound(in), Hash: c.Hash}}
			}
		}
	},
	"does not start ephemeral containers": func(_ Input, d *Decision) {
		d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Container == "e0" && a.Op == StartContainer })
	},
	"does not restart all": func(in Input, d *Decision) {
		if in.Want != nil {
			in.Want = in.Want.DeepCopy()
			for _, ctr := range podspec.Containers(&in.Want.Spec) {
				ctr.RestartPolicyRules = nil
			}
			*d = Decide(in)
		}
	},
	"restarts all without the init containers": func(in Input, d *Decision) {
		if in.Want != nil {
			round := CurrentRound(in)
			in.Observed.Containers = slices.Clone(in.Observed.Containers)
			for i := range in.Observed.Containers {
				if c := &in.Observed.Containers[i]; c.Name[0] == 'i' && c.ExitCode == 0 {
					c.Round = round
				}
			}
			*d = Decide(in)
		}
	},
	"gives the round before its grace": func(in Input, d *Decision) {
		if in.Want != nil && EarlierRoundRuns(in) {
			forEachAction(d, StopContainer, func(a *Action) { a.Grace = in.Grace })
		}
	},
	"does not decide about resources": func(_ Input, d *Decision) {
		d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Op == Allocate })
	},
	"decides about resources for nothing": func(in Input, d *Decision) {
		if in.Want != nil && in.Admitted && isIdle(in, d) {
			d.Start = []Action{{Op: Allocate}}
		}
	},
	"does not resize": func(_ Input, d *Decision) {
		d.Start = slices.DeleteFunc(d.Start, func(a Action) bool { return a.Op == Resize })
	},
	"resizes for nothing": func(in Input, d *Decision) {
		in.Unsure = true
		*d = Decide(in)
	},
	"resizes to an old spec": func(_ Input, d *Decision) { forEachAction(d, Resize, func(a *Action) { a.Hash = "old" }) },
	"goes on with an old resize": func(in Input, d *Decision) {
		d.Cancel = slices.DeleteFunc(slices.Clone(d.Cancel), func(s string) bool { return in.InFlight[s].Op == Resize })
	},
	"does not doubt the pod's size": func(in Input, d *Decision) { in.Unsure = false; *d = Decide(in) },
	"ignores the sizes of the running containers": func(in Input, d *Decision) {
		in.Sized = map[string]Resources{}
		for _, c := range in.Observed.Containers {
			in.Sized[c.ID] = in.Sizes[c.Name].Resources
		}
		*d = Decide(in)
	},
	"ignores the memory requests": func(in Input, d *Decision) {
		in.Sizes, in.Sized = maps.Clone(in.Sizes), maps.Clone(in.Sized)
		for name, s := range in.Sizes {
			s.MemoryRequest = 0
			in.Sizes[name] = s
		}
		for id, r := range in.Sized {
			r.MemoryRequest = 0
			in.Sized[id] = r
		}
		in.PodLevel.MemoryRequest = 0
		if in.Leveled != nil {
			in.Leveled = new(*in.Leveled)
			in.Leveled.MemoryRequest = 0
		}
		*d = Decide(withoutRequests(in))
	},
	"ignores the memory requests at the creation": func(in Input, d *Decision) { *d = Decide(withoutRequests(in)) },
	"does not restart for resources": func(in Input, d *Decision) {
		in.Observed.Containers = slices.Clone(in.Observed.Containers)
		for i := range in.Observed.Containers {
			in.Observed.Containers[i].RestartResources = ""
		}
		*d = Decide(in)
	},
	"resizes before a container that restarts has stopped": func(in Input, d *Decision) {
		if in.Want == nil || in.Deleting || in.End != nil || len(in.InFlight) > 0 {
			return
		}
		forEachAction(d, StopContainer, func(a *Action) {
			if c, ok := in.Observed.findContainer(a.ID); ok && a.Interrupts == Replaced && ResizeNeedsRestart(in, c) {
				sb, _ := in.Observed.Sandbox()
				*a = Action{Op: Resize, ID: sb.ID, Hash: in.Spec}
			}
		})
	},
	"waits for the old clock": func(in Input, d *Decision) {
		for _, c := range in.Observed.Containers {
			if c.State == Exited && in.Now.Before(c.FinishedAt) {
				*d = Decision{}
			}
		}
	},
}

// withoutRequests returns the input without the memory requests at the creation of containers.
func withoutRequests(in Input) Input {
	in.Observed.Containers = slices.Clone(in.Observed.Containers)
	for i, c := range in.Observed.Containers {
		if c.Resources != nil {
			c.Resources = new(*c.Resources)
			c.Resources.MemoryRequest = 0
			in.Observed.Containers[i] = c
		}
	}
	return in
}
