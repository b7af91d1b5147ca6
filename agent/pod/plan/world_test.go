package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// wanted makes a pod whose init containers are i0 ..., its sidecars s0 ... after
// them, and its main containers c0 .... The first sidecar and the first main container
// have probes, with more and with less grace than the pod.
func wanted(restartPolicy v1.RestartPolicy, inits, sidecars, mains int) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{}
	p.Spec.RestartPolicy = restartPolicy
	for i := range max(inits, sidecars) {
		if i < inits {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: fmt.Sprint("i", i)})
		}
		if i < sidecars {
			c := v1.Container{Name: fmt.Sprint("s", i), RestartPolicy: &always}
			if i == 0 {
				c.StartupProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(90))}
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
	for i := range mains {
		c := v1.Container{Name: fmt.Sprint("c", i)}
		if i == 0 {
			c.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(3))}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// decorate gives a pod the features that the bits of extra stand for: hooks, an
// ephemeral container e0, and rules by which all restart.
func decorate(pod *v1.Pod, extra int) {
	hook := &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}
	rules := func(code int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}}}}
	}
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		first := strings.HasSuffix(ctr.Name, "0")
		ctr.Lifecycle = &v1.Lifecycle{}
		if kind == podspec.Main && first && extra&1 != 0 || kind == podspec.Sidecar && extra&64 != 0 {
			ctr.Lifecycle.PostStart = hook
		}
		if kind == podspec.Main && first && extra&2 != 0 || kind == podspec.Sidecar && extra&4 != 0 {
			ctr.Lifecycle.PreStop = hook
		}
		if kind == podspec.Main && first && extra&32 != 0 {
			ctr.RestartPolicyRules = rules(2)
		}
		if kind == podspec.Init && first && extra&128 != 0 {
			ctr.RestartPolicyRules = rules(1)
		}
	}
	if extra&8 != 0 {
		e := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e0"}}
		if extra&16 != 0 {
			e.TargetContainerName = "c0"
		}
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{e}
	}
}

// definition finds a container of the pod by name.
func definition(pod *v1.Pod, name string) *v1.Container {
	_, ctr := podspec.Find(&pod.Spec, name)
	return ctr
}

// hooks are those of a container of the pod.
func hooks(pod *v1.Pod, name string) (h v1.Lifecycle) {
	if pod != nil {
		if ctr := definition(pod, name); ctr != nil && ctr.Lifecycle != nil {
			h = *ctr.Lifecycle
		}
	}
	return h
}

// A violation is what a broken invariant panics with.
type violation string

// world is the smallest runtime that can go wrong. It asserts what must hold
// whatever happens: the numbers in its messages name the invariants.
type world struct {
	in       Input
	decide   func(Input) Decision
	nextID   int
	sandbox  int             // highest sandbox attempt ever made
	attempts map[string]int  // highest attempt ever made, by container
	graced   bool            // time went on steadily since the end was asked for
	refuse   bool            // the next verdict
	held     map[string]bool // what the hooks hold: "pod" since the sandbox was prepared, "running" until Ended
	applied  string          // the spec that the worker knows to be the hooks'
	spec     *v1.PodSpec     // whose hash is
	hash     string
	resizes
	far
}

func newWorld(pod *v1.Pod, decide func(Input) Decision) *world {
	return &world{decide: decide, sandbox: -1, attempts: map[string]int{}, held: map[string]bool{}, in: Input{Want: pod, Started: t0, Now: t0, Grace: 30 * time.Second,
		Busy: map[string]Flight{}, Failed: map[Key]Failure{}, Health: map[string]Health{}, Replaced: map[string]string{},
		Hooked: map[string]bool{}, PreStopped: map[string]time.Duration{}}}
}

// off reports whether the machine goes off, and with it the pod.
func (w *world) off() bool {
	return !w.in.Off.IsZero() && w.in.Want != nil && w.in.End == nil && w.in.Admitted
}

// undone reports whether a container ended well because the machine goes off, though it
// is to be tried until it does by itself.
func (w *world) undone(c *Container) bool {
	return w.off() && c != nil && c.Name[0] == 'c' && c.State == Exited && c.ExitCode == 0 && !c.FinishedAt.Before(w.in.Off) &&
		w.in.Want.Spec.RestartPolicy == v1.RestartPolicyOnFailure
}

func (w *world) id() string { w.nextID++; return fmt.Sprint(w.nextID) }

func (w *world) must(ok bool, invariant int, format string, args ...any) {
	if !ok {
		panic(violation(fmt.Sprintf("invariant %d: ", invariant) + fmt.Sprintf(format, args...)))
	}
}

// plan decides, checks the decision and puts its actions in flight.
func (w *world) plan() Decision {
	w.in.Busy, w.in.Failed, w.in.Replaced = maps.Clone(w.in.Busy), maps.Clone(w.in.Failed), maps.Clone(w.in.Replaced)
	if w.in.Want != nil { // as the worker does
		maps.DeleteFunc(w.in.Failed, func(k Key, f Failure) bool {
			return k.Op == StartContainer && f.Hash != Hash(definition(w.in.Want, k.Container))
		})
	}
	w.specs()
	if w.in.Want != nil && !w.in.Deleting && w.in.End == nil { // as the worker does
		if over := Finished(w.in) || Expired(w.in) || w.off(); !over {
			w.in.Stopping = time.Time{}
		} else if w.in.Stopping.IsZero() {
			w.in.Stopping = w.in.Now
		}
	}
	d := w.decide(w.in)
	d2 := w.decide(w.in)
	w.must(slices.Equal(d.Start, d2.Start) && slices.Equal(d.Cancel, d2.Cancel) && d.Wake.Equal(d2.Wake), 1,
		"not deterministic: %+v %+v", d, d2)
	w.must(d.Wake.IsZero() || d.Wake.After(w.in.Now), 2, "wake %v is not after now: the worker would spin", d.Wake)
	w.must(d.Wake.IsZero() || d.Wake.Sub(w.in.Now) <= 24*time.Hour, 2, "wake %v is too far away", d.Wake)
	left := len(w.in.Seen.Sandboxes) + len(w.in.Seen.Containers) + len(w.in.Busy)
	w.must(!d.Done || left == 0 && (w.in.Want == nil || w.in.Deleting), 3, "done, but something is left or wanted: %+v", w.in.Seen)
	w.must(!d.Done || !w.held["pod"], 40, "done, but the hooks hold something of it")
	w.must(!w.in.Hold || len(d.Start)+len(d.Cancel) == 0, 4, "an orphan whose source has not spoken is touched: %+v", d)
	for subject, f := range w.in.Busy {
		useless := (w.in.Want == nil || w.in.Deleting || w.in.End != nil || w.off()) &&
			(f.Op == RunSandbox || f.Op == StartContainer || f.Op == PostStart || f.Op == Update || f.Op == Resize)
		useless = useless || (w.in.Want == nil || w.in.Deleting || w.in.End != nil) && f.Op == Allocate
		useless = useless || (w.in.Want == nil || w.in.Deleting) && (f.Op == Admit || f.Op == Ended)
		useless = useless || w.in.Want != nil && !w.in.Deleting && f.Op == Forget
		w.must(!useless || w.in.Hold || slices.Contains(d.Cancel, subject), 22, "%+v goes on for a pod that ends", f)
		if hooks := f.Op == PostStart || f.Op == PreStop; hooks && !w.in.Hold {
			c := find(w.in.Seen, f.ID)
			w.must(c != nil && c.State == Running || slices.Contains(d.Cancel, subject), 60, "%+v goes on in a container that does not run", f)
		}
		if sb, _ := w.in.Seen.Sandbox(); (f.Op == Update || f.Op == Resize) && !useless && sb.Ready && w.in.Admitted && !w.in.Waiting &&
			!w.in.Hold && !Finished(w.in) && !Expired(w.in) {
			w.must(f.Hash == w.in.Spec || slices.Contains(d.Cancel, subject), 49, "an update to a spec that is not wanted goes on")
		}
		if over := w.in.Want == nil || w.in.Waiting || w.in.Hold; !over && f.Op == StartContainer &&
			f.Hash != Hash(definition(w.in.Want, subject)) {
			w.must(!w.next(subject) || slices.Contains(d.Cancel, subject), 23, "%+v goes on for a definition that is not wanted", f)
		}
	}
	for _, a := range d.Start {
		_, busy := w.in.Busy[a.Container]
		w.must(!busy, 5, "two actions on %q", a.Container)
		_, pod := w.in.Busy[""]
		w.must(!pod && (a.Container != "" || w.idle(a.Op)), 5, "a pod action beside another one: %+v, busy %+v", a, w.in.Busy)
		f := w.in.Failed[Key{a.Container, a.Op}]
		w.must(!w.in.Now.Before(f.Retry) || f.ID != a.Target, 6, "%+v before its retry", a)
		w.check(a)
		if a.Op == StartContainer {
			w.checkTurn(a, d)
		}
	}
	for _, a := range d.Start {
		w.in.Busy[a.Container] = Flight{Action: a, Since: w.in.Now}
		w.begin(a)
		if (a.Op == StopContainer || a.Op == PreStop) && (a.Hash != "" || a.Again) {
			w.in.Replaced[a.Container] = a.ID
		}
		w.in.Forgotten = false
		if a.Op == RunSandbox || a.Op == StartContainer { // whose first step is Prepare
			w.in.Ended, w.held["pod"], w.held["running"] = false, true, true
		}
	}
	for _, s := range d.Cancel {
		f, busy := w.in.Busy[s]
		w.must(busy, 5, "cancels %q, which does nothing", s)
		if f.Op == StopContainer && !f.Since.After(w.in.Now) {
			least := min(leastGrace, w.in.Grace)
			w.must(f.Since.Add(f.Grace).After(w.in.Now.Add(least)), 64, "%+v is begun anew, and ends no sooner", f)
		}
		w.preStopped(w.in.Busy[s])
		delete(w.in.Busy, s)
	}
	return d
}

// idle reports whether nothing goes on that an action on the pod itself has to wait for.
func (w *world) idle(op Op) bool {
	for _, f := range w.in.Busy {
		hook := f.Op == PostStart || f.Op == PreStop
		if op != Allocate && !(hook && (op == Update || op == Resize)) {
			return false
		}
	}
	return true
}

// preStopped notes that a hook has ended, however it did.
func (w *world) preStopped(f Flight) {
	if f.Op == PreStop {
		w.in.PreStopped = maps.Clone(w.in.PreStopped)
		w.in.PreStopped[f.ID] = w.in.Now.Sub(f.Since)
	}
}

// specs gives the planner the hashes of specs as the worker does.
func (w *world) specs() {
	w.in.Spec, w.in.Applied = "", ""
	if w.in.Want == nil {
		return
	}
	if w.spec != &w.in.Want.Spec {
		w.spec, w.hash = &w.in.Want.Spec, SpecHash(&w.in.Want.Spec)
	}
	sb, _ := w.in.Seen.Sandbox()
	w.in.Spec, w.in.Applied = w.hash, cmp.Or(w.applied, sb.Hash)
	w.showSizes(sb)
}

func (w *world) check(a Action) {
	ending := w.in.Want == nil || w.in.Deleting || w.in.End != nil || w.off()
	removing := w.in.Want == nil || w.in.Deleting
	newest, any := w.in.Seen.Sandbox()
	runs := w.live(func(Container) bool { return true }) || slices.ContainsFunc(w.in.Seen.Sandboxes, func(s Sandbox) bool { return s.Ready })
	switch a.Op {
	case Admit:
		w.must(w.in.Want != nil && !w.in.Deleting && !w.in.Waiting, 41, "a verdict on a pod that ends or waits")
		w.must(!w.in.Admitted && w.in.End == nil || w.in.End != nil && w.in.Reconsider && !runs, 41, "a second verdict")
	case Allocate:
		w.must(w.in.Undecided && w.in.Admitted && !ending && !w.in.Waiting, 63, "decides about resources for nothing")
	case Resize:
		w.checkResize(a, newest, ending)
	case Update:
		w.must(!ending && w.in.Admitted && newest.Ready, 42, "updates what does not run")
		w.must(a.Hash == w.in.Spec && a.Hash != w.in.Applied && w.in.Applied != "", 42, "updates for nothing: %q is %q", a.Hash, w.in.Applied)
	case Ended:
		over := w.in.End != nil || w.in.Want != nil && (Finished(w.in) || Expired(w.in))
		w.must(over && !removing, 43, "the hooks hear of an end that is none")
		w.must(!runs, 43, "the hooks give back what runs")
		w.must(!w.in.Ended, 43, "the hooks hear of the same end again")
	case Forget:
		w.must(removing && len(w.in.Seen.Sandboxes)+len(w.in.Seen.Containers) == 0, 44, "forgets a pod of which something is left")
		w.must(!w.in.Forgotten, 44, "forgets it again")
	case RunSandbox:
		w.must(w.in.Admitted && w.in.End == nil, 45, "runs a sandbox without a verdict")
		w.must(a.Hash == w.in.Spec, 42, "a sandbox of another spec")
		w.must(!ending && !w.in.Waiting, 7, "runs a sandbox for a pod that ends or waits")
		w.must(!newest.Ready, 8, "runs a sandbox beside a ready one")
		w.must(int(a.Attempt) > w.sandbox, 9, "sandbox attempt %d used twice", a.Attempt)
		w.must(!w.live(func(Container) bool { return true }), 10, "runs a sandbox while containers run")
	case StartContainer:
		w.must(w.in.Admitted && w.in.End == nil, 45, "starts a container without a verdict")
		w.must(!ending && !w.in.Waiting, 7, "starts a container of a pod that ends or waits")
		w.must(any && newest.Ready, 8, "starts a container without a ready sandbox")
		w.must(newest.ID != w.in.Stale, 8, "starts a container in a stale sandbox")
		w.checkStart(a, newest)
	case PostStart:
		c := find(w.in.Seen, a.ID)
		w.must(c != nil && c.State == Running && c.PostStart && !w.in.Hooked[a.ID], 62, "runs a postStart hook for nothing: %+v", c)
		w.must(!ending && !HookFailed(w.in, *c), 62, "runs a postStart hook again that failed")
	case PreStop:
		w.checkStop(a, newest)
		w.checkGrace(a, ending)
		w.checkPreStop(a)
	case StopContainer:
		w.checkStop(a, newest)
		w.checkGrace(a, ending)
		w.checkHooked(a, ending)
		main := a.Container[0] == 's' && w.in.Want != nil && ending && w.graced
		w.must(!main || !w.live(func(c Container) bool { return c.Name[0] == 'c' && c.ID != a.ID }) ||
			w.in.Now.Sub(w.in.Stopping) >= w.in.Grace, 12, "sidecar %s stops before the main containers", a.Container)
	case RemoveContainer:
		c := find(w.in.Seen, a.ID)
		w.must(c != nil && !c.Live(), 13, "removes a container that runs: %+v", a)
		last, _ := w.in.Seen.Last(a.Container)
		ended, _ := w.in.Seen.LastExited(a.Container)
		w.must(removing || a.ID != last.ID && a.ID != ended.ID || w.undone(c), 14, "removes the container that logs and attempts need: %+v", a)
	case StopSandbox:
		w.must(!w.live(func(c Container) bool { return c.SandboxID == a.ID && (ending || a.ID == w.in.Stale) }), 15,
			"stops a sandbox under its containers")
	case RemoveSandbox:
		used := slices.ContainsFunc(w.in.Seen.Containers, func(c Container) bool { return c.SandboxID == a.ID })
		w.must(!used, 16, "removes a sandbox with its containers")
		w.must(removing || a.ID != newest.ID, 16, "removes the sandbox that is in use")
	}
}

// checkPreStop says that a hook runs once, before its container stops.
func (w *world) checkPreStop(a Action) {
	c := find(w.in.Seen, a.ID)
	_, ran := w.in.PreStopped[a.ID]
	w.must(c != nil && c.State == Running && hooks(w.in.Want, a.Container).PreStop != nil && !ran, 52,
		"runs a preStop hook for nothing: %+v", c)
	w.must(a.Grace > 0, 52, "a preStop hook has %v", a.Grace)
}

// checkHooked says that nothing stops without its preStop hook, if there is time for it.
func (w *world) checkHooked(a Action, ending bool) {
	c := find(w.in.Seen, a.ID)
	if c == nil || w.in.Want == nil {
		return
	}
	last, _ := w.in.Seen.Last(a.Container)
	stale := c.Round < Round(w.in) && !ending && !Finished(w.in) && !Expired(w.in)
	_, ran := w.in.PreStopped[a.ID]
	late := w.in.Grace == 0 || !w.in.Stopping.IsZero() && w.in.Now.Sub(w.in.Stopping) >= w.in.Grace
	w.must(ran || late || stale || c.ID != last.ID || c.State != Running || hooks(w.in.Want, a.Container).PreStop == nil, 53,
		"stops %+v without its hook", c)
	sb, _ := w.in.Seen.Sandbox()
	renews := stale && sb.Ready && sb.ID != w.in.Stale && w.in.Admitted && !w.in.Waiting && a.Container[0] != 'e' && c.ID == last.ID
	w.must(!renews || a.Grace <= leastGrace, 61, "%s has %v though all restart", a.Container, a.Grace)
}

// checkTurn says that no main container starts while one before it is on its way to the
// end of its hook.
func (w *world) checkTurn(a Action, d Decision) {
	for _, ctr := range w.in.Want.Spec.Containers {
		if ctr.Name == a.Container || a.Container[0] != 'c' {
			return
		}
		if hooks(w.in.Want, ctr.Name).PostStart == nil {
			continue
		}
		does := func(a Action) bool { return a.Container == ctr.Name && (a.Op == StartContainer || a.Op == PostStart) }
		goesOn := does(w.in.Busy[ctr.Name].Action) && !slices.Contains(d.Cancel, ctr.Name)
		w.must(!goesOn && !slices.ContainsFunc(d.Start, does), 51, "%s starts beside the hook of %s", a.Container, ctr.Name)
	}
}

func (w *world) checkStart(a Action, sb Sandbox) {
	w.must(!w.live(func(c Container) bool { return c.Name == a.Container }), 17, "second live instance of %s", a.Container)
	last, ok := w.in.Seen.Last(a.Container)
	ctr := definition(w.in.Want, a.Container)
	changed := ok && (Changed(ctr, last) || Outgrown(w.in, last))
	round := Round(w.in)
	w.must(a.Hash == Hash(ctr), 23, "%+v is not of the wanted definition", a)
	w.must(a.Round == round, 55, "%+v belongs to round %d", a, round)
	w.must(!changed || a.Streak == 0, 20, "streak of %s is %d after another definition", a.Container, a.Streak)
	resumed := ok && !changed && last.State == Created && last.Attempt == a.Attempt
	most, made := w.attempts[a.Container]
	w.must(resumed || !made || int(a.Attempt) > most, 18, "attempt %d of %s used twice", a.Attempt, a.Container)
	kind := a.Container[0]
	if kind == 'e' {
		ran := slices.ContainsFunc(w.in.Seen.Containers, func(c Container) bool { return c.Name == a.Container && c.State != Created })
		w.must(!ran, 54, "an ephemeral container starts again")
		return
	}
	w.must(!Renewing(w.in), 55, "%+v starts before the last round has ended", a)
	if ok && last.State == Exited {
		never := w.in.Want.Spec.RestartPolicy == v1.RestartPolicyNever
		onFailure := w.in.Want.Spec.RestartPolicy == v1.RestartPolicyOnFailure && last.ExitCode == 0
		replaced := w.in.Replaced[a.Container] == last.ID || last.Round < round
		w.must(kind != 'c' || replaced || !never && !onFailure, 19, "%s runs again against its restart policy", a.Container)
		at, delay := NextStart(last, 0)
		sane := !changed && at.Sub(w.in.Now) <= 2*delay
		w.must(last.SandboxID != sb.ID || !sane || !w.in.Now.Before(at), 20, "%s runs again %v too early", a.Container, at.Sub(w.in.Now))
		follows := last.Streak + 1
		switch {
		case last.SandboxID != sb.ID:
			follows = 0
		case lost(last):
			follows = last.Streak
		case last.FinishedAt.Sub(last.StartedAt) >= backoffReset:
			follows = 1
		}
		w.must(changed || a.Streak == follows, 20, "streak of %s is %d after %d", a.Container, a.Streak, last.Streak)
	}
	if Initialized(w.in, sb) {
		return
	}
	for _, ctr := range w.in.Want.Spec.InitContainers { // all before it must be done
		if ctr.Name == a.Container {
			return
		}
		c, _ := w.in.Seen.Last(ctr.Name)
		started := c.State == Running && !Hooking(w.in, c) && (ctr.StartupProbe == nil || w.in.Health[c.ID].Started)
		done := c.SandboxID == sb.ID && c.Round == round && (c.State == Exited && c.ExitCode == 0 || ctr.RestartPolicy != nil && started)
		w.must(done, 21, "%s starts before %s is done", a.Container, ctr.Name)
	}
}

// checkGrace says that a container gets what its pod grants; one that its probes gave up,
// what the probe does, and that this one runs again also if it ends well.
func (w *world) checkGrace(a Action, ending bool) {
	c := find(w.in.Seen, a.ID)
	sb, _ := w.in.Seen.Sandbox()
	if ending || c == nil || a.Hash != "" || sb.ID == w.in.Stale || !sb.Ready || c.SandboxID != sb.ID || c.State != Running ||
		Finished(w.in) || Expired(w.in) || !w.in.Health[c.ID].Unhealthy {
		w.must(a.Grace <= w.in.Grace, 11, "grace %v is more than the pod's", a.Grace)
		w.must(!a.Again || c != nil && !ending && Outgrown(w.in, *c), 50, "%s runs again however it ends", a.Container)
		return
	}
	if last, _ := w.in.Seen.Last(c.Name); last.ID != c.ID {
		return
	}
	want, ctr := w.in.Grace, definition(w.in.Want, a.Container)
	switch started := w.in.Health[c.ID].Started; {
	case started && ctr.LivenessProbe != nil:
		want = time.Duration(*ctr.LivenessProbe.TerminationGracePeriodSeconds) * time.Second
	case !started && ctr.StartupProbe != nil:
		want = time.Duration(*ctr.StartupProbe.TerminationGracePeriodSeconds) * time.Second
	}
	if c.Round < Round(w.in) && c.Name[0] != 'e' { // checkHooked has the rule
		return
	}
	want = max(want-w.in.PreStopped[c.ID], min(leastGrace, want))
	if Outgrown(w.in, *c) {
		return
	}
	w.must(a.Grace == want, 11, "grace %v is not the probe's, %v", a.Grace, want)
	w.must(a.Again == (w.in.Want.Spec.RestartPolicy == v1.RestartPolicyOnFailure && ctr.RestartPolicy == nil), 50, "again: %v", a.Again)
}

// checkStop says that nothing is stopped without a reason.
func (w *world) checkStop(a Action, sb Sandbox) {
	c := find(w.in.Seen, a.ID)
	if w.in.Want == nil || w.in.Deleting || w.in.End != nil || w.off() || Finished(w.in) || Expired(w.in) || c == nil {
		return
	}
	last, _ := w.in.Seen.Last(a.Container)
	changed := Changed(definition(w.in.Want, a.Container), *c) && a.Container[0] != 'i'
	lost := !sb.Ready || c.SandboxID != sb.ID || sb.ID == w.in.Stale
	_, hooked := w.in.PreStopped[c.ID]
	late := hooked || HookFailed(w.in, *c) || c.Round < Round(w.in) && a.Container[0] != 'e'
	w.must(lost || changed || late || Outgrown(w.in, *c) || c.State == Unknown || c.ID != last.ID || w.in.Health[c.ID].Unhealthy, 24,
		"stops %+v for nothing", c)
	w.must(a.Hash == "" || changed, 24, "replaces %+v by the same", c)
}

// next reports whether it is a container's turn to start: none is that still has
// init containers before it.
func (w *world) next(name string) bool {
	sb, ok := w.in.Seen.Sandbox()
	if !ok || !sb.Ready || sb.ID == w.in.Stale || Finished(w.in) || Expired(w.in) || Renewing(w.in) {
		return false
	}
	if name[0] == 'e' {
		return true
	}
	if Initialized(w.in, sb) {
		return name[0] != 'i'
	}
	for _, ctr := range slices.Concat(w.in.Want.Spec.InitContainers, w.in.Want.Spec.Containers) {
		if ctr.Name == name {
			return true
		}
		c, _ := w.in.Seen.Last(ctr.Name)
		if c.SandboxID != sb.ID || c.Round != Round(w.in) ||
			!(c.State == Exited && c.ExitCode == 0 && ctr.RestartPolicy == nil || ctr.RestartPolicy != nil && Started(w.in, c)) {
			return false
		}
	}
	return true
}

func (w *world) live(which func(Container) bool) bool {
	return slices.ContainsFunc(w.in.Seen.Containers, func(c Container) bool { return c.Live() && which(c) })
}

func find(o Observed, id string) *Container {
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			return &o.Containers[i]
		}
	}
	return nil
}
