package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/life/observe"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
)

// A wishes contains the desired pods in memory.
type wishes struct {
	mu       sync.Mutex
	pods     map[types.UID]Wanted
	admitted map[types.UID]bool // pods with a decision; the others need one
	refused  *plan.End          // result of the next admission; nil: admitted
	asked    atomic.Int64       // number of admissions
	broken   error              // error of the store
	mute     bool               // an admission changes nothing visible
	silent   bool
	again    *v1.Pod // this pod is desired again when the pod is forgotten
	late     int     // number of times that a forgotten pod is still desired with Deleting
	poke     func(types.UID)
}

func (d *wishes) Get(uid types.UID) (Wanted, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, ok := d.pods[uid]
	w.Admitted = d.admitted[uid] && w.End == nil
	return w, ok
}

func (d *wishes) Admit(_ context.Context, uid types.UID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked.Add(1)
	if d.broken != nil {
		return d.broken
	}
	w := d.pods[uid]
	w.End, w.Reconsider = d.refused, false
	d.pods[uid], d.admitted[uid] = w, d.refused == nil && !d.mute
	return nil
}

func (d *wishes) Allocate(_ context.Context, uid types.UID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.pods[uid]
	w.Undecided = false
	d.pods[uid] = w
	return d.broken
}

func (d *wishes) HasReported(string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.silent
}

func (d *wishes) Forget(_ context.Context, uid types.UID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.late > 0 {
		d.late--
		w := d.pods[uid]
		w.Pod = w.Pod.DeepCopy() // the pod changes
		d.pods[uid] = w
		d.poke(uid)
		return nil
	}
	delete(d.pods, uid)
	delete(d.admitted, uid)
	if d.again != nil {
		d.pods[uid], d.again = Wanted{Pod: d.again}, nil
		d.poke(uid)
	}
	return nil
}

// node is an agent on a machine. A restart of the agent keeps the machine.
type node struct {
	*machine
	wishes
	set     *Set
	actor   *Executor
	hooks   hook.Chain
	objects translate.Objects // nil: no objects exist
	imports Imports
	keyring Keyring
	guard   PullVerifier
	network func() error                             // nil: pods always get a network
	facts   atomic.Pointer[translate.Node]           // the addresses and DNS servers; nil: there are none
	ran     atomic.Pointer[translate.Node]           // the facts of the last new sandbox
	stale   func(string) bool                        // nil: no sandbox is stale
	starts  int                                      // 0: the default of four
	marks   *handlers                                // the records of hooks and interruptions
	off     func(*v1.Pod) (time.Time, time.Duration) // nil: the machine does not shut down
	health  Health                                   // nil: no probes
	events  eventRecorder
	links   Links // nil: there are no links
	logs    string
	changed atomic.Int64
	stop    func()
}

func newNode(t *testing.T, m *machine) *node {
	return &node{machine: m, wishes: wishes{pods: map[types.UID]Wanted{}, admitted: map[types.UID]bool{}}, logs: t.TempDir(), marks: newHandlers()}
}

// start runs an agent. The caller must have stopped the previous agent.
func (n *node) start(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	var view *observe.Observer
	n.marks.forgetUnstored()
	n.actor = NewExecutor(ExecutorConfig{Standalone: true, Lifecycle: n.marks, Runtime: n.machine, Images: n.machine, Imports: n.imports, Keyring: n.keyring, Verifier: n.guard, Network: n.network, Hooks: n.hooks, Objects: n.objects, Links: n.links, Events: eventtest.Sink(n.events.record), MaxStarts: cmp.Or(n.starts, 4), Log: log,
		CheckDNS: func(now translate.Node) { n.ran.Store(&now) },
		Node: func() translate.Node {
			now := translate.Node{Name: "n", LogDir: n.logs}
			if f := n.facts.Load(); f != nil {
				now.IPs, now.Resolv = f.IPs, f.Resolv
			}
			return now
		}})
	view = observe.New(observe.Config{Runtime: n.machine, Changed: func(uid types.UID) { n.set.Poke(uid) }, Log: log})
	n.set = New(Config{Desired: &n.wishes, View: view, Actor: n.actor, Events: eventtest.Sink(n.events.record), IsStale: n.stale, Health: n.health, ShutdownTermination: n.off, HookReturned: n.marks.hasReturned, Interruption: n.marks.interruption, Sizes: translate.Fields{Node: func() translate.Node { return translate.Node{} }}.Sizes, Log: log, Changed: func(types.UID) { n.changed.Add(1) }})
	n.wishes.poke = n.set.Poke
	ctx, cancel := context.WithCancel(t.Context())
	if err := view.Relist(ctx); err != nil {
		t.Fatal(err)
	}
	for _, uid := range view.UIDs() {
		n.set.Poke(uid)
	}
	for uid := range n.wishes.pods {
		n.set.Poke(uid)
	}
	var wg sync.WaitGroup
	wg.Go(func() { view.Run(ctx) })
	wg.Go(func() { n.set.Run(ctx) })
	n.stop = func() { cancel(); wg.Wait() }
}

// setWish changes a desired pod and waits until all goroutines are blocked.
func (n *node) setWish(uid types.UID, w Wanted) {
	n.wishes.mu.Lock()
	n.wishes.pods[uid] = w
	n.wishes.mu.Unlock()
	n.set.Poke(uid)
	synctest.Wait()
}

func pod(uid string, policy v1.PullPolicy) *v1.Pod {
	return podtest.New(uid, podtest.Containers(v1.Container{Name: "c", Image: "app:1", ImagePullPolicy: policy}))
}

func bubble(t *testing.T, m *machine, f func(t *testing.T, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.start(t)
		defer func() { n.stop() }()
		f(t, n)
	})
}

func checkRunning(t *testing.T, n *node, running ...string) {
	t.Helper()
	synctest.Wait()
	if got := n.list(true); !slices.Equal(got, running) {
		t.Fatalf("runs: %v, not %v", got, running)
	}
}

func (n *node) failure(uid types.UID) plan.Failure {
	return n.set.Input(uid).Failed[plan.Key{Container: "c", Op: plan.StartContainer}]
}

// TestLifeAndDeath checks that a pod runs and is deleted within its grace period. No container or sandbox is left.
func TestLifeAndDeath(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", v1.PullIfNotPresent)})
		checkRunning(t, n, "a/c#0")
		began := time.Now()
		n.setWish("a", Wanted{Pod: pod("a", ""), Deleting: true, Grace: 7 * time.Second})
		for n.countLeft(t) > 0 {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(began); d.Round(time.Second) != 7*time.Second {
			t.Errorf("took %v", d)
		}
		synctest.Wait()
		if _, known := n.Get("a"); known || len(n.set.listWorkers()) > 0 {
			t.Error("not forgotten")
		}
	})
}

// TestIdle checks that a running pod causes no decision for an hour.
func TestIdle(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", "")})
		checkRunning(t, n, "a/c#0")
		before := n.changed.Load()
		time.Sleep(time.Hour)
		if more := n.changed.Load() - before; more > 0 {
			t.Errorf("%d decisions in an idle hour", more)
		}
	})
}

// TestCrashLoop checks that a crashing container is restarted at once, then after 10 s, 20 s and so on. Restarts of the agent do not change
// these times.
func TestCrashLoop(t *testing.T) {
	m := newMachine("app:1")
	m.life = time.Millisecond
	bubble(t, m, func(t *testing.T, n *node) {
		began := time.Now()
		n.setWish("a", Wanted{Pod: pod("a", "")})
		for range 23 {
			time.Sleep(7 * time.Second)
			n.stop()
			n.start(t)
		}
		for attempt, at := range []time.Duration{0, 0, 10, 30, 70, 150} {
			m.mu.Lock()
			got := m.started[attempt].Sub(began)
			m.mu.Unlock()
			if d := got - at*time.Second; d < 0 || d > 100*time.Millisecond {
				t.Errorf("attempt %d after %v, not %v s", attempt, got, int(at))
			}
		}
	})
}

// TestSandboxFails checks that a sandbox that fails to start is retried after 1, 2 and 4 seconds. The worker does not poll.
func TestSandboxFails(t *testing.T) {
	m := newMachine("app:1")
	left := 3
	m.runFail = func() error {
		if left--; left >= 0 {
			return errors.New("no network yet")
		}
		return nil
	}
	bubble(t, m, func(t *testing.T, n *node) {
		began := time.Now()
		n.setWish("a", Wanted{Pod: pod("a", "")})
		if f := n.set.Input("a").Failed[plan.Key{Op: plan.RunSandbox}]; f.Reason != plan.FailedCreatePodSandBox {
			t.Errorf("reason %q", f.Reason)
		}
		for len(n.list(true)) == 0 {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(began); d < 7*time.Second || d > 7100*time.Millisecond {
			t.Errorf("took %v", d)
		}
	})
}

// TestRestarts checks that pods continue while the agent is stopped, and that the starting agent restarts no pod. After a power cut, all
// containers run again as a new attempt.
func TestRestarts(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", "")})
		n.stop()
		checkRunning(t, n, "a/c#0")
		n.start(t)
		checkRunning(t, n, "a/c#0")
		time.Sleep(time.Minute)
		n.stop()
		n.Reboot()
		n.start(t)
		checkRunning(t, n, "a/c#1")
	})
}

// TestOrphan checks that a running pod that is not desired is removed only after its source has listed its pods.
func TestOrphan(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", "")})
		n.stop()
		n.wishes.pods, n.wishes.silent = map[types.UID]Wanted{}, true
		n.start(t)
		time.Sleep(time.Hour)
		checkRunning(t, n, "a/c#0")
		n.wishes.mu.Lock()
		n.wishes.silent = false
		n.wishes.mu.Unlock()
		n.set.PokeAll()
		time.Sleep(time.Minute)
		if checkRunning(t, n); n.countLeft(t) > 0 {
			t.Error("the orphan was not removed")
		}
	})
}

// TestPredecessor checks that a pod waits until the former pod with the same name has ended.
func TestPredecessor(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("old", Wanted{Pod: pod("old", "")})
		n.setWish("new", Wanted{Pod: pod("new", ""), Predecessor: "old"})
		n.setWish("old", Wanted{Pod: pod("old", ""), Deleting: true, Grace: time.Minute})
		time.Sleep(59 * time.Second)
		checkRunning(t, n, "old/c#0")
		time.Sleep(2 * time.Second)
		if _, known := n.Get("old"); known {
			t.Fatal("not forgotten")
		}
		n.setWish("new", Wanted{Pod: pod("new", "")})
		checkRunning(t, n, "new/c#0")
	})
}

// TestBoundedStarts checks that the number of sandboxes that start at the same time is limited. Each pod runs as soon as its own sandbox
// has started.
func TestBoundedStarts(t *testing.T) {
	m := newMachine("app:1")
	m.startup = time.Second
	bubble(t, m, func(t *testing.T, n *node) {
		for i := range 30 {
			n.setWish(types.UID(fmt.Sprint("p", i)), Wanted{Pod: pod(fmt.Sprint("p", i), "")})
		}
		time.Sleep(1001 * time.Millisecond)
		if got := len(n.list(true)); got != 4 {
			t.Errorf("%d pods run after a second", got)
		}
		time.Sleep(7 * time.Second)
		if got := len(n.list(true)); got != 30 || m.most != 4 {
			t.Errorf("%d pods run, %d started at once", got, m.most)
		}
	})
}

// TestHangingStarts checks that sandboxes that hang while they start delay other pods for at most startSlotTime.
func TestHangingStarts(t *testing.T) {
	m := newMachine("app:1")
	m.startup = 100 * time.Second
	bubble(t, m, func(t *testing.T, n *node) {
		for i := range 6 {
			n.setWish(types.UID(fmt.Sprint("p", i)), Wanted{Pod: pod(fmt.Sprint("p", i), "")})
		}
		time.Sleep(startSlotTime - time.Second)
		if got := m.starting(); got != 4 {
			t.Errorf("%d start at once", got)
		}
		time.Sleep(2 * time.Second)
		if got := m.starting(); got != 6 {
			t.Errorf("%d have begun to start: hanging starts keep their slots", got)
		}
		time.Sleep(5 * time.Minute) // each slot is released only once
		if got := len(n.list(true)); got != 6 {
			t.Errorf("%d pods run", got)
		}
	})
}

// TestWantedAgain checks that a pod begins a new life if it is desired again while it ends.
func TestWantedAgain(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", "")})
		n.again = pod("a", "")
		n.setWish("a", Wanted{Pod: pod("a", ""), Deleting: true, Grace: time.Minute})
		time.Sleep(2 * time.Minute)
		checkRunning(t, n, "a/c#0")
		if age := time.Since(n.set.Input("a").Started); age.Round(time.Second) != time.Minute {
			t.Errorf("the pod started %v ago", age)
		}
	})
}

// TestForgottenLate checks that the removal of a pod is reported once more if the pod's source missed the first report. Otherwise the pod
// would stay and block the next pod with the same name.
func TestForgottenLate(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", "")})
		n.late = 1
		n.setWish("a", Wanted{Pod: pod("a", ""), Deleting: true, Grace: time.Second})
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, known := n.Get("a"); known || len(n.set.listWorkers()) > 0 {
			t.Error("not forgotten")
		}
	})
}

// idleActor is an actor that does nothing and reports success.
type idleActor struct{ n atomic.Int64 }

func (a *idleActor) Do(context.Context, plan.Input, plan.Action) error { a.n.Add(1); return nil }

// TestNoEffect checks that a worker does not loop if the runtime reports success but changes nothing.
func TestNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, actor := newNode(t, newMachine()), &idleActor{}
		n.wishes.pods["a"] = Wanted{Pod: pod("a", "")}
		log := slog.New(slog.DiscardHandler)
		n.set = New(Config{Desired: &n.wishes, View: observe.New(observe.Config{Runtime: n.machine, Log: log}), Actor: actor, Log: log})
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go n.set.Run(ctx)
		n.set.Poke("a")
		time.Sleep(10 * time.Minute)
		if n := actor.n.Load(); n < 10 || n > 20 {
			t.Errorf("tried %d times", n)
		}
	})
}

// A panicky is a hook that panics for one pod.
type panicky struct{ times int }

func (*panicky) Name() string { return "panicky" }

func (h *panicky) Prepare(_ context.Context, p *v1.Pod) error {
	if p.Name == "bad" && h.times > 0 {
		h.times--
		panic("oh")
	}
	return nil
}

// TestPanic checks that a panic delays only the pod that caused it, for a few seconds.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newMachine("app:1"))
		n.hooks = hook.Chain{&panicky{times: 2}}
		n.start(t)
		defer n.stop()
		n.setWish("bad", Wanted{Pod: pod("bad", "")})
		n.setWish("good", Wanted{Pod: pod("good", "")})
		checkRunning(t, n, "good/c#0")
		time.Sleep(4 * time.Second)
		checkRunning(t, n, "bad/c#0", "good/c#0")
		n.wishes.mu.Lock()
		n.wishes.pods["bad"] = Wanted{} // a Wanted without a pod makes the worker panic
		n.wishes.mu.Unlock()
		n.set.Poke("bad")
		time.Sleep(time.Minute)
		n.setWish("bad", Wanted{Pod: pod("bad", ""), Deleting: true})
		time.Sleep(2 * time.Minute)
		checkRunning(t, n, "good/c#0")
	})
}
