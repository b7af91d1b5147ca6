package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/podspec"
)

// These are the steps of a pod with two init containers and a readiness probe, as a watcher sees them.
const (
	sandboxUp = "Pending sandbox: running PodInitializing PodInitializing"
	firstEnd  = "Pending sandbox: Completed running PodInitializing"
	secondEnd = "Running sandbox: Completed Completed running"
	ready     = "Running sandbox ready: Completed Completed running"
)

var steps = []string{"Pending: PodInitializing PodInitializing PodInitializing", sandboxUp, firstEnd, secondEnd, ready}

// stepStatus returns the status of a pod that has just reached a step.
func stepStatus(step int) *v1.PodStatus {
	is := func(ok bool) v1.ConditionStatus {
		if ok {
			return v1.ConditionTrue
		}
		return v1.ConditionFalse
	}
	now := metav1.NewTime(time.Now())
	running := func() v1.ContainerState { return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}} }
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}
	waits := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "PodInitializing"}}
	at := func(name string, starts int) v1.ContainerStatus {
		switch c := (v1.ContainerStatus{Name: name, State: waits}); {
		case step == starts || step > starts && name == "main":
			c.State, c.Ready = running(), step == len(steps)-1
			return c
		case step > starts:
			c.State, c.Ready = ended, true
			return c
		default:
			return c
		}
	}
	s := &v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{
		{Type: v1.PodReadyToStartContainers, Status: is(step > 0)}, {Type: v1.PodReady, Status: is(step == len(steps)-1)}}}
	s.InitContainerStatuses = []v1.ContainerStatus{at("first", 1), at("second", 2)}
	s.ContainerStatuses = []v1.ContainerStatus{at("main", 3)}
	if step >= 3 {
		s.Phase = v1.PodRunning
	}
	return s
}

// describe returns the step that a status shows, or "" for a pod without a status.
func describe(s *v1.PodStatus) string {
	if s.Phase == "" || len(s.ContainerStatuses) == 0 {
		return ""
	}
	text := string(s.Phase)
	if podspec.HasCondition(s, v1.PodReadyToStartContainers) {
		text += " sandbox"
	}
	if podspec.IsReady(s) {
		text += " ready"
	}
	text += ":"
	for _, c := range append(slices.Clone(s.InitContainerStatuses), s.ContainerStatuses...) {
		switch {
		case c.State.Running != nil:
			text += " running"
		case c.State.Terminated != nil:
			text += " " + c.State.Terminated.Reason
		default:
			text += " " + c.State.Waiting.Reason
		}
	}
	return text
}

// A watcher is another client that watches all pods.
type watcher struct {
	mu   sync.Mutex
	seen map[string][]string // the different statuses of each pod, as describe returns them
}

func (w *world) watcher() *watcher {
	client := w.Client(w.T)
	ctx, cancel := context.WithCancel(context.Background())
	events, err := kube.Watch[v1.Pod](ctx, client, "", metav1.ListOptions{FieldSelector: "spec.nodeName=n"})
	if err != nil {
		w.Fatal(err)
	}
	all, ended := &watcher{seen: map[string][]string{}}, make(chan struct{})
	go func() {
		defer close(ended)
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*v1.Pod); ok {
				all.see(p)
			}
		}
	}()
	w.Cleanup(func() { cancel(); events.Stop(); <-ended })
	return all
}

func (a *watcher) see(p *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := describe(&p.Status)
	if had := a.seen[p.Name]; text != "" && (len(had) == 0 || had[len(had)-1] != text) {
		a.seen[p.Name] = append(had, text)
	}
}

func (a *watcher) of(name string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen[name])
}

// climb reports the steps of a pod one after the other. The parameter each is the time between two steps.
func (w *world) climb(p *v1.Pod, each time.Duration) {
	for step := range steps {
		w.box.Put(p, stepStatus(step))
		if step > 0 && step < len(steps)-1 {
			time.Sleep(each)
		}
	}
}

// TestSteps checks that a watcher sees each step of a start that lasts longer than a second. Shorter steps are merged.
func TestSteps(t *testing.T) {
	for _, x := range []struct {
		each time.Duration
		want []string
	}{
		{2 * time.Second, steps[1:]},
		{settleTime + 100*time.Millisecond, steps[1:]},
		{settleTime / 4, []string{ready}},
	} {
		t.Run(x.each.String(), func(t *testing.T) {
			in(t, func(w *world) {
				watcher, p := w.watcher(), w.bind("p")
				w.climb(p, x.each)
				time.Sleep(settleTime)
				if got := watcher.of("p"); !slices.Equal(got, x.want) || w.patches() != len(x.want) {
					t.Errorf("%d requests. A watcher sees\n%s\nwant\n%s", w.patches(), strings.Join(got, "\n"), strings.Join(x.want, "\n"))
				}
			})
		})
	}
}

// TestQuickSteps checks that a watcher sees the status of a pod whose steps take less than a second each.
func TestQuickSteps(t *testing.T) {
	in(t, func(w *world) {
		p, restarts := w.bind("p"), int32(0)
		for range 100 {
			s := stepStatus(1)
			restarts++
			s.InitContainerStatuses[0].RestartCount = restarts
			w.box.Put(p, s)
			time.Sleep(settleTime / 5)
		}
		span := 20 * time.Second
		if n, most := w.patches(), int(span/settleMost)+1; n < most-2 || n > most {
			t.Errorf("%d requests in %v, want about one in %v", n, span, settleMost)
		}
	})
}

// TestStepOfHostNetwork checks that the condition PodReadyToStartContainers is reported for a pod with the host's network. Such a pod has
// no address of its own.
func TestStepOfHostNetwork(t *testing.T) {
	in(t, func(w *world) {
		watcher, p := w.watcher(), w.bind("p")
		w.box.Put(p, stepStatus(0))
		time.Sleep(2 * settleTime)
		s := stepStatus(0)
		s.Conditions[0].Status = v1.ConditionTrue
		w.box.Put(p, s)
		time.Sleep(settleTime + settleTime/10)
		if got := watcher.of("p"); len(got) != 2 || !strings.HasPrefix(got[1], "Pending sandbox") {
			t.Errorf("a watcher sees %q", got)
		}
	})
}

// TestStepsOfManyPods checks that a watcher sees all steps of 30 pods that start at once. When 100 pods start, the rate of writes is
// limited, each pod is reported, and statuses that controllers need are not delayed.
func TestStepsOfManyPods(t *testing.T) {
	for _, x := range []struct{ pods, most int }{{30, 4 * 30}, {100, 100 + stepBurst + int(6*time.Second/stepEvery) + 1}} {
		t.Run(fmt.Sprint(x.pods), func(t *testing.T) {
			in(t, func(w *world) {
				watcher := w.watcher()
				var all []*v1.Pod
				for i := range x.pods {
					all = append(all, w.bind(fmt.Sprintf("p%02d", i)))
				}
				sent, received := w.Bytes()
				for step := range steps {
					for _, p := range all {
						w.box.Put(p, stepStatus(step))
					}
					if step > 0 && step < len(steps)-1 {
						time.Sleep(2 * time.Second)
					}
				}
				synctest.Wait()
				for _, p := range all {
					if got := watcher.of(p.Name); got[len(got)-1] != ready || len(got) < 2 || x.pods == 30 && len(got) != 4 {
						t.Errorf("a watcher sees of %s\n%s", p.Name, strings.Join(got, "\n"))
					}
				}
				n := w.patches()
				sent2, received2 := w.Bytes()
				t.Logf("%d pods: %d writes, %d bytes sent, %d received", x.pods, n, sent2-sent, received2-received)
				if n > x.most {
					t.Errorf("%d requests for %d pods, want at most %d", n, x.pods, x.most)
				}
			})
		})
	}
}

// TestStepsOfAnOutage checks that only the last status of each pod is sent after an outage.
func TestStepsOfAnOutage(t *testing.T) {
	in(t, func(w *world) {
		var all []*v1.Pod
		for i := range 100 {
			all = append(all, w.bind(fmt.Sprint("p", i)))
		}
		w.Disconnect()
		w.CloseConnections()
		newest := map[types.UID]string{}
		for step := range steps {
			for i, p := range all {
				if step == len(steps)-1 && i%2 == 0 { // half of them are not ready when the link is up
					continue
				}
				s := stepStatus(step)
				newest[p.UID] = describe(s)
				w.box.Put(p, s)
			}
			time.Sleep(2 * time.Second)
		}
		before := w.patches()
		w.Reconnect()
		w.retry <- struct{}{}
		time.Sleep(2 * time.Minute) // beyond every back-off
		for _, p := range all {
			if got := describe(&w.Pod(p.Namespace, p.Name).Status); got != newest[p.UID] {
				t.Errorf("%s: the server has %q, want %q", p.Name, got, newest[p.UID])
			}
		}
		if n := w.patches() - before; n != len(all) {
			t.Errorf("%d requests after the outage for %d pods", n, len(all))
		}
	})
}
