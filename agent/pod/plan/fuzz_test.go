package plan

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func FuzzPlan(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Add([]byte{2, 1, 1, 1, 1, 1, 17, 1, 1, 33, 1, 2, 6, 1})
	f.Add([]byte{255, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 23, 0, 0, 0, 0})
	f.Add([]byte{20, 0, 0, 0, 5, 0, 29, 0, 165, 0, 16})           // a sidecar restarts all containers while the init container after it runs
	f.Add([]byte{33, 0, 0, 0, 5, 0, 29, 0, 117, 0, 53, 37, 0, 0}) // a sidecar waits for its restart while the init container after it completes
	f.Add(stopLost)
	f.Fuzz(func(t *testing.T, data []byte) {
		defer func() {
			if v, ok := recover().(violation); ok {
				t.Fatal(v)
			}
		}()
		simulatePod(data, Decide)
	})
}

// simulatePod applies the events in data to a pod and then lets all actions succeed. It then checks that one more change takes effect.
func simulatePod(data []byte, decide func(Input) Decision) {
	if len(data) == 0 {
		return
	}
	shape := int(data[0])
	restartPolicy := []v1.RestartPolicy{"Always", "OnFailure", "Never"}[shape%3]
	pod := newPod(restartPolicy, shape>>2%3, shape>>4%3, 1+shape>>6%2)
	decorate(pod, int(data[len(data)-1]))
	w := newWorld(pod, decide)
	w.remote = shape>>7 == 1
	for _, b := range data[1:min(len(data), 500)] {
		w.plan()
		w.event(pod, int(b&15), int(b>>4))
	}
	w.settlePod()
	w.change(2 + shape%12)
	w.settlePod()
	if w.shuttingDown() { // a boot follows the shutdown
		w.restart(0)
		w.in.ShutdownSince = time.Time{}
		w.settlePod()
	}
}

// event applies one event of the given kind. The parameter arg selects a variant.
func (w *world) event(pod *v1.Pod, kind, arg int) {
	subjects := slices.Sorted(maps.Keys(w.in.InFlight))
	containers := w.in.Observed.Containers
	switch kind {
	case 0, 1, 2: // an action succeeds
		if len(subjects) > 0 {
			w.finish(subjects[arg%len(subjects)])
		}
	case 3, 4: // an action fails
		if len(subjects) > 0 {
			w.fail(subjects[arg%len(subjects)], arg>>1)
		}
	case 5, 6: // a container exits
		if len(containers) > 0 {
			w.endContainer(containers[arg%len(containers)].ID, int32(arg/5%3), arg)
		}
	case 7: // time passes, and some changes become visible
		if arg > 7 {
			w.relist()
		}
		w.in.Now = w.in.Now.Add(time.Duration(arg) * 11 * time.Second)
	case 8: // the clock is set by a small or large amount
		w.setClock([]time.Duration{-time.Hour, time.Hour, -5 * time.Second, -100 * 24 * time.Hour}[arg%4])
	case 9: // the shim is killed with its containers, or the sandbox alone
		if arg%2 == 0 {
			w.killAll(137)
		} else {
			w.stopSandboxes(func(Sandbox) bool { return true })
		}
	case 10: // the agent restarts: it loses its memory, and its actions are interrupted
		w.restart(arg)
	case 11: // power cut: no container runs, and the clock may have any value
		w.restart(arg)
		w.killAll(255)
		w.stopSandboxes(func(Sandbox) bool { return true })
		w.in.ShutdownSince = time.Time{}
		w.over = false // the times of containers do not move with the clock
		w.in.Now = []time.Time{w.in.Now.Add(time.Minute), time.Unix(9, 0)}[arg%2]
		if w.in.Started.After(w.in.Now) {
			w.in.Started = w.in.Now
		}
	case 12: // the desired state changes
		w.wish(pod, arg)
	case 13: // a probe fails or has no result yet
		if len(containers) > 0 {
			w.in.Health = maps.Clone(w.in.Health)
			w.in.Health[containers[arg%len(containers)].ID] = []Health{{Started: true, Unhealthy: true}, {Started: true, Ready: true}, {}, {Unhealthy: true}}[arg%4]
		}
	case 14: // the runtime loses its whole state or that of one container
		if w.remote && arg%4 == 3 {
			w.removeByTool(arg >> 2)
		} else if arg%4 == 0 {
			w.in.Observed, w.sandbox, w.attempts, w.unseen, w.over = Observed{}, -1, map[string]int{}, nil, false
			w.restart(3)
		} else if len(containers) > 0 && containers[arg%len(containers)].MayRun() {
			w.in.Observed.Containers = slices.Clone(containers)
			w.in.Observed.Containers[arg%len(containers)].State = Unknown
		}
	case 15:
		w.change(arg)
	}
}

// This helper changes a field of the input that may change while a pod runs.
func (w *world) change(arg int) {
	if arg%4 == 0 {
		w.in.Grace = time.Duration(arg) * time.Second
		if sb, ok := w.in.Observed.Sandbox(); ok && arg%8 == 4 { // the node's network was replaced
			w.in.Stale = sb.ID
		}
		return
	}
	if w.in.Want == nil {
		return
	}
	pod := w.in.Want.DeepCopy()
	w.in.Want = pod
	if arg%4 == 1 {
		d := int64(arg * 60)
		pod.Spec.ActiveDeadlineSeconds = &d
		return
	}
	if arg&2 != 0 && arg&12 != 0 && arg&12 != 12 {
		w.ask(arg)
		return
	}
	list := [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers}[arg%2]
	if len(list) > 0 {
		list[arg>>2%len(list)].Image = fmt.Sprint("app:", arg)
	}
	if arg > 13 { // an agent without hashes created the containers
		w.in.Observed.Containers = slices.Clone(w.in.Observed.Containers)
		for i := range w.in.Observed.Containers {
			w.in.Observed.Containers[i].Hash = ""
		}
		w.in.Observed.Sandboxes = slices.Clone(w.in.Observed.Sandboxes)
		for i := range w.in.Observed.Sandboxes {
			w.in.Observed.Sandboxes[i].Hash = ""
		}
		w.applied = ""
	}
}

// setClock sets the wall clock. The worker's times are monotonic and move with the clock. The times that the runtime has stored do not
// move.
func (w *world) setClock(by time.Duration) {
	w.in.Now, w.in.Started, w.over = w.in.Now.Add(by), w.in.Started.Add(by), false
	if !w.in.Stopping.IsZero() {
		w.in.Stopping = w.in.Stopping.Add(by)
	}
	if !w.in.ShutdownSince.IsZero() {
		w.in.ShutdownSince = w.in.ShutdownSince.Add(by)
	}
	for k, f := range w.in.Failed {
		f.At, f.Retry = f.At.Add(by), f.Retry.Add(by)
		w.in.Failed[k] = f
	}
	for s, f := range w.in.InFlight {
		f.Since = f.Since.Add(by)
		w.in.InFlight[s] = f
	}
}

func (w *world) restart(how int) {
	w.relist()
	for i, s := range slices.Sorted(maps.Keys(w.in.InFlight)) {
		if (how>>i)%2 == 0 {
			w.fail(s, how)
		}
	}
	clear(w.in.InFlight)
	clear(w.in.Failed)
	w.in.PreStopped = map[string]time.Duration{}
	w.in.Health, w.graced = maps.Clone(w.in.Health), false
	for id, h := range w.in.Health { // the status keeps the probe results
		w.in.Health[id] = Health{Started: h.Started, Ready: h.Ready}
	}
	w.in.Ended, w.in.Unmounted, w.in.Forgotten, w.applied = false, false, false, ""
	w.forgetSizes()
	w.in.Admitted = w.in.End == nil && len(w.in.Observed.Sandboxes)+len(w.in.Observed.Containers) > 0
	if !w.in.Stopping.IsZero() {
		w.in.Stopping = w.in.Now
	}
}

func (w *world) killAll(code int32) {
	for _, c := range w.in.Observed.Containers {
		w.exit(c.ID, code)
	}
}

func (w *world) wish(pod *v1.Pod, arg int) {
	in := &w.in
	stop := func() { in.Stopping, w.graced = in.Now, true }
	if arg > 12 {
		arg -= 8
	}
	switch arg {
	case 8, 9:
		w.refuse = arg == 8
	case 10: // a pod ended, or the node changed
		in.Reconsider = in.End != nil
		in.Undecided = len(w.asks) > 0
	case 11: // the machine shuts down
		if in.ShutdownSince.IsZero() {
			in.ShutdownSince, w.over = in.Now, false
			stop()
		}
	case 12: // the shutdown is cancelled
		in.ShutdownSince = time.Time{}
		if in.Want != nil && !in.Deleting && in.End == nil {
			in.Stopping = time.Time{}
		}
	case 0: // the store is lost too
		in.Want = nil
		stop()
	case 1:
		in.Deleting = in.Want != nil
		stop()
	case 2, 3: // the same UID is desired again
		in.Want, in.Deleting, in.End, in.Stopping, in.Waiting = pod, false, nil, time.Time{}, false
	case 4:
		in.Hold, in.Want = true, nil
	case 5: // the pod's source has listed its pods
		if in.Hold {
			in.Hold, in.Want, in.Deleting, in.End = false, pod, false, nil
		}
	case 6:
		in.End = &End{Reason: "Evicted"}
		stop()
	case 7:
		in.Waiting = len(in.Observed.Sandboxes) == 0
	}
	if in.Want != nil {
		in.Hold = false
	}
}

// settlePod lets all actions succeed. It checks that the pod reaches its desired state.
func (w *world) settlePod() {
	w.relist()
	w.in.Hold, w.in.Waiting = false, false
	for id, h := range w.in.Health {
		w.in.Health[id] = Health{Started: true, Ready: true, Unhealthy: h.Unhealthy}
	}
	for range 600 {
		d := w.plan()
		subjects := slices.Sorted(maps.Keys(w.in.InFlight))
		switch {
		case len(subjects) > 0:
			w.finish(subjects[0])
		case len(d.Cancel) > 0: // the end of a cancelled action is an event
		case w.endInits(), w.passProbes():
		case !d.Wake.IsZero():
			w.in.Now = d.Wake
		default:
			w.checkSettled(d)
			return
		}
	}
	w.require(false, 30, "no fixpoint: %+v", w.in)
}

// passProbes lets all pending startup probes succeed. It reports whether there were any.
func (w *world) passProbes() (any bool) {
	w.in.Health = maps.Clone(w.in.Health)
	for id, h := range w.in.Health {
		if !h.Started {
			w.in.Health[id], any = Health{Started: true, Ready: true}, true
		}
	}
	return any
}

func (w *world) endInits() (any bool) {
	for _, c := range w.in.Observed.Containers {
		if c.Name[0] == 'i' && c.State == Running {
			w.exit(c.ID, 0)
			any = true
		}
	}
	return any
}

func (w *world) checkSettled(d Decision) {
	in := w.in
	sb, _ := in.Observed.Sandbox()
	kept := map[string]int{}
	ready := 0
	for _, c := range in.Observed.Containers {
		kept[c.Name]++
		if c.State != Exited {
			kept[c.Name]--
		}
		w.require(kept[c.Name] <= 1, 31, "dead containers pile up: %+v", in.Observed.Containers)
	}
	for _, s := range in.Observed.Sandboxes {
		if s.Ready {
			ready++
		}
		used := slices.ContainsFunc(in.Observed.Containers, func(c Container) bool { return c.SandboxID == s.ID })
		over := in.Want == nil || in.Deleting || in.End != nil || w.shuttingDown() || IsFinished(in) || DeadlineExpired(in)
		w.require(s.ID == sb.ID || used || over, 32, "an unused sandbox stays: %+v", s)
	}
	w.require(ready <= 1, 33, "more than one sandbox")
	w.require(!w.anyRunning(func(c Container) bool { return in.Interrupted[c.ID] != 0 }), 68, "an interrupted container goes on: %+v, %+v",
		in.Observed, in.Interrupted)
	over := in.Want != nil && !in.Deleting && !w.shuttingDown() && (in.End != nil || IsFinished(in) || DeadlineExpired(in))
	w.require(!over || in.End == nil || !in.Reconsider, 48, "a refusal is not reconsidered")
	w.settledSizes(over)
	w.require(!over || !w.held["running"], 46, "the hooks still hold what a pod needs that runs")
	switch {
	case in.Want == nil || in.Deleting:
		w.require(d.Done, 34, "not removed: %+v", in.Observed)
	case w.shuttingDown():
		w.require(!w.anyRunning(func(Container) bool { return true }) && ready == 0, 63, "runs though the machine goes off: %+v", in.Observed)
		w.require(!w.held["mounted"] && AtRest(in), 70, "volumes are still mounted though the machine goes off")
	case in.End != nil || IsFinished(in) || DeadlineExpired(in):
		w.require(!w.anyRunning(func(Container) bool { return true }) && ready == 0, 35, "still runs: %+v", in.Observed)
	default:
		w.require(in.Applied == in.Spec || in.Applied == "", 47, "the hooks do not know the spec")
		for _, ctr := range slices.Concat(in.Want.Spec.InitContainers, in.Want.Spec.Containers) {
			c, ok := in.Observed.Newest(ctr.Name)
			w.require(!sb.Ready || sb.ID != in.Stale, 38, "stays in a stale sandbox: %+v", in.Observed)
			want := ctr.Name[0] == 's' || ctr.Name[0] == 'c' && (!ok || c.State != Exited || w.runsAgain(&ctr, c))
			runs := c.State == Running && c.SandboxID == sb.ID && !in.Health[c.ID].Unhealthy
			w.require(!want || runs, 36, "%s does not run: %+v", ctr.Name, in.Observed)
			w.require(!want || !DefinitionChanged(&ctr, c), 37, "%s runs as it was once wanted: %+v", ctr.Name, c)
		}
	}
}
