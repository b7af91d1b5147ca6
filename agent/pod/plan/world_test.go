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
	"github.com/islet-edge/islet/internal/podtest"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newPod returns a pod with the init containers i0, i1 and so on, the sidecars s0 and s1, and the main containers c0 and c1. The first
// sidecar has a startup probe, whose grace period is longer than the pod's. The first main container has a liveness probe, whose grace
// period is shorter than the pod's.
func newPod(restartPolicy v1.RestartPolicy, inits, sidecars, mains int) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	p := podtest.New("pod", podtest.RestartPolicy(restartPolicy), podtest.Containers())
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

// decorate adds features to a pod. Each bit of the parameter extra selects a feature: hooks, an ephemeral container e0, or rules that
// restart all containers. The sidecars have rules if there is no ephemeral container.
func decorate(pod *v1.Pod, extra int) {
	hook := &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}
	rules := func(codes ...int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: codes}}}
	}
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		first := strings.HasSuffix(ctr.Name, "0")
		ctr.Lifecycle = &v1.Lifecycle{}
		if kind == podspec.Main && first && extra&1 != 0 || kind == podspec.Sidecar && extra&64 != 0 {
			ctr.Lifecycle.PostStart = hook
		}
		if kind == podspec.Main && first && extra&2 != 0 || kind == podspec.Sidecar && extra&4 != 0 {
			ctr.Lifecycle.PreStop = hook
			if extra&64 != 0 {
				ctr.Lifecycle.PreStop = &v1.LifecycleHandler{Exec: &v1.ExecAction{}}
			}
		}
		if kind == podspec.Main && first && extra&32 != 0 {
			ctr.RestartPolicyRules = rules(2)
		}
		if kind == podspec.Init && first && extra&128 != 0 {
			ctr.RestartPolicyRules = rules(1)
		}
		if kind == podspec.Sidecar && extra&24 == 16 { // also if the sidecar is killed
			ctr.RestartPolicyRules = rules(2, 137)
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

// definition returns the pod's container with the given name.
func definition(pod *v1.Pod, name string) *v1.Container {
	_, ctr := podspec.Find(&pod.Spec, name)
	return ctr
}

// This helper returns the lifecycle hooks of a pod's container.
func hooks(pod *v1.Pod, name string) (h v1.Lifecycle) {
	if pod != nil {
		if ctr := definition(pod, name); ctr != nil && ctr.Lifecycle != nil {
			h = *ctr.Lifecycle
		}
	}
	return h
}

// A violation is the message of a panic about a violated invariant.
type violation string

// world is a minimal runtime whose actions may fail. It checks the invariants. A message about a violation contains the number of the
// invariant.
type world struct {
	in       Input
	decide   func(Input) Decision
	nextID   int
	sandbox  int             // highest sandbox attempt so far
	attempts map[string]int  // highest attempt so far; the key is the container's name
	graced   bool            // the clock was not set since the pod's end was requested
	refuse   bool            // the next admission is rejected
	held     map[string]bool // state held by hooks: "pod" after Prepare, "running" until Ended, "mounted" until Ended or Unmount
	applied  string          // hash of the spec that the hooks have applied, according to the worker
	spec     *v1.PodSpec     // spec whose hash is in the field hash
	hash     string
	resizes
	farRuntime
	podEnd
}

func newWorld(pod *v1.Pod, decide func(Input) Decision) *world {
	return &world{decide: decide, sandbox: -1, attempts: map[string]int{}, held: map[string]bool{}, in: Input{Want: pod, Started: t0, Now: t0, Grace: 30 * time.Second,
		InFlight: map[string]RunningAction{}, Failed: map[Key]Failure{}, Health: map[string]Health{},
		Hooked: map[string]bool{}, PreStopped: map[string]time.Duration{}}}
}

// shuttingDown reports whether the machine is shutting down and the pod must end.
func (w *world) shuttingDown() bool {
	return !w.in.ShutdownSince.IsZero() && w.in.Want != nil && w.in.End == nil && w.in.Admitted
}

func (w *world) id() string { w.nextID++; return fmt.Sprint(w.nextID) }

func (w *world) require(ok bool, invariant int, format string, args ...any) {
	if !ok {
		panic(violation(fmt.Sprintf("invariant %d: ", invariant) + fmt.Sprintf(format, args...)))
	}
}

// plan calls the planner, checks the decision and begins its actions.
func (w *world) plan() Decision {
	w.in.InFlight, w.in.Failed, w.in.Interrupted = maps.Clone(w.in.InFlight), maps.Clone(w.in.Failed), maps.Clone(w.in.Interrupted)
	if w.in.Want != nil { // as the worker does
		maps.DeleteFunc(w.in.Failed, func(k Key, f Failure) bool {
			return k.Op == StartContainer && f.Hash != Hash(definition(w.in.Want, k.Container))
		})
	}
	w.specs()
	w.checkEnd()
	if w.in.Want != nil && !w.in.Deleting && w.in.End == nil { // as the worker does
		if over := IsFinished(w.in) || DeadlineExpired(w.in) || w.shuttingDown(); !over {
			w.in.Stopping = time.Time{}
		} else if w.in.Stopping.IsZero() {
			w.in.Stopping = w.in.Now
		}
	}
	d := w.decide(w.in)
	d2 := w.decide(w.in)
	w.require(slices.Equal(d.Start, d2.Start) && slices.Equal(d.Cancel, d2.Cancel) && d.Wake.Equal(d2.Wake), 1,
		"not deterministic: %+v %+v", d, d2)
	w.require(d.Wake.IsZero() || d.Wake.After(w.in.Now), 2, "wake %v is not after now: the worker would spin", d.Wake)
	w.require(d.Wake.IsZero() || d.Wake.Sub(w.in.Now) <= 24*time.Hour, 2, "wake %v is too far away", d.Wake)
	left := len(w.in.Observed.Sandboxes) + len(w.in.Observed.Containers) + len(w.in.InFlight)
	w.require(!d.Done || left == 0 && (w.in.Want == nil || w.in.Deleting), 3, "done, but something is left or wanted: %+v", w.in.Observed)
	w.require(!d.Done || !w.held["pod"], 40, "done, but the hooks hold something of it")
	w.require(!w.in.Hold || len(d.Start)+len(d.Cancel) == 0, 4, "an orphan whose source has not spoken is touched: %+v", d)
	for subject, f := range w.in.InFlight {
		useless := (w.in.Want == nil || w.in.Deleting || w.in.End != nil || w.shuttingDown()) &&
			(f.Op == RunSandbox || f.Op == StartContainer || f.Op == PostStart || f.Op == Update || f.Op == Resize)
		useless = useless || (w.in.Want == nil || w.in.Deleting || w.in.End != nil) && f.Op == Allocate
		useless = useless || (w.in.Want == nil || w.in.Deleting) && (f.Op == Admit || f.Op == Ended)
		useless = useless || w.in.Want != nil && !w.in.Deleting && f.Op == Forget
		useless = useless || (!w.shuttingDown() || w.in.Deleting) && f.Op == Unmount
		w.require(!useless || w.in.Hold || slices.Contains(d.Cancel, subject), 22, "%+v goes on for a pod that ends", f)
		if hooks := f.Op == PostStart || f.Op == PreStop; hooks && !w.in.Hold {
			c := find(w.in.Observed, f.ID)
			w.require(c != nil && c.State == Running || slices.Contains(d.Cancel, subject), 60, "%+v goes on in a container that does not run", f)
		}
		if sb, _ := w.in.Observed.Sandbox(); (f.Op == Update || f.Op == Resize) && !useless && sb.Ready && w.in.Admitted && !w.in.Waiting &&
			!w.in.Hold && !IsFinished(w.in) && !DeadlineExpired(w.in) {
			w.require(f.Hash == w.in.Spec || slices.Contains(d.Cancel, subject), 49, "an update to a spec that is not wanted goes on")
		}
		if over := w.in.Want == nil || w.in.Waiting || w.in.Hold; !over && f.Op == StartContainer &&
			f.Hash != Hash(definition(w.in.Want, subject)) {
			w.require(!w.isNext(subject) || slices.Contains(d.Cancel, subject), 23, "%+v goes on for a definition that is not wanted", f)
		}
	}
	w.checkProgress(d)
	for _, a := range d.Start {
		_, busy := w.in.InFlight[a.Container]
		w.require(!busy, 5, "two actions on %q", a.Container)
		_, pod := w.in.InFlight[""]
		w.require(!pod && (a.Container != "" || w.isIdle(a.Op)), 5, "a pod action beside another one: %+v, busy %+v", a, w.in.InFlight)
		f := w.in.Failed[Key{a.Container, a.Op}]
		w.require(!w.in.Now.Before(f.Retry) || f.ID != a.Target, 6, "%+v before its retry", a)
		w.check(a)
		if a.Op == StartContainer {
			w.checkTurn(a, d)
		}
	}
	for _, a := range d.Start {
		w.in.InFlight[a.Container] = RunningAction{Action: a, Since: w.in.Now}
		w.begin(a)
		w.interrupt(a)
		w.in.Forgotten = false
		if a.Op == RunSandbox || a.Op == StartContainer { // both actions begin with Prepare
			w.in.Ended, w.in.Unmounted, w.held["pod"], w.held["running"], w.held["mounted"] = false, false, true, true, true
		}
	}
	for _, s := range d.Cancel {
		f, busy := w.in.InFlight[s]
		w.require(busy, 5, "cancels %q, which does nothing", s)
		if f.Op == StopContainer && !f.Since.After(w.in.Now) {
			w.require(f.Since.Add(f.Grace).After(w.in.Now.Add(leastGrace)), 64, "%+v is begun anew, and ends no sooner", f)
		}
		w.preStopped(w.in.InFlight[s])
		delete(w.in.InFlight, s)
	}
	return d
}

// isIdle reports whether an action on the pod itself may begin. Some running actions block it.
func (w *world) isIdle(op Op) bool {
	for _, f := range w.in.InFlight {
		hook := f.Op == PostStart || f.Op == PreStop
		if op != Allocate && !(hook && (op == Update || op == Resize)) {
			return false
		}
	}
	return true
}

// This helper records that a preStop hook has ended. The hook may have failed.
func (w *world) preStopped(f RunningAction) {
	if f.Op == PreStop {
		w.in.PreStopped = maps.Clone(w.in.PreStopped)
		w.in.PreStopped[f.ID] = w.in.Now.Sub(f.Since)
	}
}

// This helper sets the hashes of the specs in the planner's input, as the worker does.
func (w *world) specs() {
	w.in.Spec, w.in.Applied = "", ""
	if w.in.Want == nil {
		return
	}
	if w.spec != &w.in.Want.Spec {
		w.spec, w.hash = &w.in.Want.Spec, SpecHash(&w.in.Want.Spec)
	}
	sb, _ := w.in.Observed.Sandbox()
	w.in.Spec, w.in.Applied = w.hash, cmp.Or(w.applied, sb.Hash)
	w.showSizes(sb)
}

// isNext reports whether a container may start. All init containers before it must have finished.
func (w *world) isNext(name string) bool {
	sb, ok := w.in.Observed.Sandbox()
	if !ok || !sb.Ready || sb.ID == w.in.Stale || IsFinished(w.in) || DeadlineExpired(w.in) || EarlierRoundRuns(w.in) {
		return false
	}
	if name[0] == 'e' {
		return true
	}
	if MainContainerCreated(w.in, sb) {
		return name[0] != 'i'
	}
	for _, ctr := range slices.Concat(w.in.Want.Spec.InitContainers, w.in.Want.Spec.Containers) {
		if ctr.Name == name {
			return true
		}
		c, _ := w.in.Observed.Newest(ctr.Name)
		if ctr.RestartPolicy != nil && w.wasPassed(ctr.Name, sb) {
			continue
		}
		if c.SandboxID != sb.ID || c.Round != CurrentRound(w.in) ||
			!(w.completed(c) && ctr.RestartPolicy == nil || ctr.RestartPolicy != nil && IsStarted(w.in, c)) {
			return false
		}
	}
	return true
}

// wasPassed reports whether an init container after the sidecar was created in the sandbox and the current round, so that nothing waits for
// the sidecar any more.
func (w *world) wasPassed(sidecar string, sb Sandbox) bool {
	list := w.in.Want.Spec.InitContainers
	at := slices.IndexFunc(list, func(ctr v1.Container) bool { return ctr.Name == sidecar })
	return slices.ContainsFunc(list[at+1:], func(ctr v1.Container) bool {
		c, ok := w.in.Observed.Newest(ctr.Name)
		return ok && c.SandboxID == sb.ID && c.Round == CurrentRound(w.in)
	})
}

func (w *world) anyRunning(which func(Container) bool) bool {
	return slices.ContainsFunc(w.in.Observed.Containers, func(c Container) bool { return c.MayRun() && which(c) })
}

func find(o Observed, id string) *Container {
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			return &o.Containers[i]
		}
	}
	return nil
}
