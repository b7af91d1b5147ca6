package bundle

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
)

// second returns a change of a source directory that adds a pod.
func second(name string) func(string) {
	return func(dir string) {
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: a, image: localhost/db:1}]}\n", name)
		if err := os.WriteFile(filepath.Join(dir, "manifests", name+".yaml"), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
}

// TestTrial checks the three ends of a trial: a bundle whose pods become Ready is kept, the node returns from a bundle whose new pod does
// not become Ready, and a person reverts a bundle. A pod that is the same in both bundles keeps its UID.
func TestTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, two, three := w.bundle(1, nil), w.bundle(2, second("bad")), w.bundle(3, second("more"))
		w.bad["bad"] = true
		n, stop := w.run()
		status := func(want string) {
			t.Helper()
			s, err := n.Status()
			w.must(err)
			got := ""
			if s.Current != nil {
				got = fmt.Sprint(s.Current.Number)
			}
			if s.Trial != nil {
				got += fmt.Sprint(" trial ", s.Trial.Number)
			}
			if s.Last != nil {
				got += " " + s.Last.Result
			}
			if got != want {
				t.Errorf("status %q, want %q", got, want)
			}
		}
		do := func(file string) {
			t.Helper()
			if _, err := apply(n, file, file == two); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		do(one)
		status(" trial 1")
		time.Sleep(5 * time.Second)
		status("1 kept")
		uid := w.sourcePods[0].Pod.UID
		if !slices.Equal(w.names(), []string{"web"}) {
			t.Error(w.names())
		}
		if b, err := apply(n, one, false); err != nil || !b.InUse {
			t.Errorf("the bundle in use again: %+v, %v", b, err)
		}
		do(two)
		status("1 trial 2 kept")
		if !slices.Equal(w.names(), []string{"bad", "web"}) {
			t.Error(w.names())
		}
		if _, err := apply(n, three, false); !errors.Is(err, ErrTrial) {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		status("1 failed")
		if r := n.now(); !strings.Contains(r.Last.Why, "default/bad") || !slices.Equal(w.names(), []string{"web"}) || w.sourcePods[0].Pod.UID != uid {
			t.Errorf("%+v, pods %v", r.Last, w.names())
		}
		w.check(n, "after a failure")
		do(three)
		time.Sleep(10 * time.Second)
		status("3 kept")
		w.check(n, "after the third")
		at := slices.IndexFunc(w.sourcePods, func(c desired.SourcePod) bool { return c.Pod.Name == "web" })
		if w.sourcePods[at].Pod.UID != uid {
			t.Error("a pod that does not differ has another UID")
		}
		if _, err := n.Revert(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		status("1 reverted")
		if !slices.Equal(w.names(), []string{"web"}) {
			t.Error(w.names())
		}
		w.check(n, "after a revert")
		stop()
		n, stop = w.run()
		time.Sleep(time.Second)
		status("1 reverted")
		if !slices.Equal(w.names(), []string{"web"}) {
			t.Errorf("after a restart: %v", w.names())
		}
		do(two)
		for range maxStarts { // a trial survives the restart of the agent, but not forever
			stop()
			n, stop = w.run()
			time.Sleep(time.Second)
			status("1 trial 2 reverted")
		}
		stop()
		n, stop = w.run()
		time.Sleep(time.Second)
		status("1 failed")
		w.check(n, "after too many starts")
		stop()
	})
}

// TestStartingPods applies a bundle with a bad instance of a pod while the good instance is still starting: after a start of the agent, and
// after a revert. The trial begins when the good instance is Ready, so the node returns to it. If the instance is not Ready until the
// deadline, the trial begins then, and does not require it. On a node whose pods are Ready, no trial waits.
func TestStartingPods(t *testing.T) {
	build := newWorld(t)
	other := func(arg string) func(string) {
		return replace("manifests/web.yaml", "spec:\n", "spec:\n  hostname: "+arg+"\n")
	}
	one, two, three := build.bundle(1, nil), build.bundle(2, other("two")), build.bundle(3, other("bad"))
	for name, c := range map[string]struct {
		revert bool
		after  time.Duration // until the pod is Ready
		stick  bool
		begins time.Duration // when the trial begins at the latest
		result string
	}{
		"all are Ready":    {begins: 0, result: Failed},
		"a start":          {after: 6 * time.Second, begins: 7 * time.Second, result: Failed},
		"a start, a stick": {after: 6 * time.Second, begins: 7 * time.Second, result: Failed, stick: true},
		"a revert":         {after: 6 * time.Second, begins: 7 * time.Second, result: Failed, revert: true},
		"an ill pod":       {after: time.Hour, begins: 11 * time.Second, result: Kept},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for _, file := range []string{one, two} {
					_, err := apply(w.boot(nil), file, false)
					w.must(err)
					keep(w.boot(nil))
				}
				n := w.boot(nil)
				ready := time.Now()
				n.c.List = func() (list []*v1.Pod) {
					for _, p := range w.list() {
						if p.Spec.Hostname == "bad" || time.Now().Before(ready) {
							p.Status.Conditions = nil
						}
						list = append(list, p)
					}
					return list
				}
				stop := start(n)
				defer stop()
				synctest.Wait() // the pods are delivered
				if c.revert {
					time.Sleep(time.Hour)
					_, err := n.Revert(t.Context())
					w.must(err)
				}
				began := time.Now()
				ready = began.Add(c.after)
				var err error
				if c.stick {
					_, _, err = n.ApplyNewest(t.Context(), offers(three))
				} else {
					_, err = apply(n, three, false)
				}
				w.must(err)
				if wait := time.Since(began); wait > c.begins || c.after < time.Hour && wait < c.after {
					t.Errorf("the trial began after %v", wait)
				}
				last, err := n.AwaitTrial(t.Context())
				w.must(err)
				if last.Number != 3 || last.Result != c.result {
					t.Errorf("%+v, want %s", last, c.result)
				}
			})
		})
	}
}

// TestEndOfWait checks how long the trial of a bundle waits while a pod is ill. On a node that always restarts before the deadline, a stick
// is tried after a few starts. A person waits for a minute at most. If a person reverts meanwhile, the wait ends.
func TestEndOfWait(t *testing.T) {
	build := newWorld(t)
	one, two, three := build.bundle(1, nil), build.bundle(2, second("more")), build.bundle(3, second("new"))
	for name, wait := range map[string]func(t *testing.T, w *world, boot func() (*Node, func())){
		"restarts": func(t *testing.T, w *world, boot func() (*Node, func())) {
			for range maxStarts {
				n, stop := boot()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				if _, _, err := n.ApplyNewest(ctx, offers(three)); !errors.Is(err, context.DeadlineExceeded) || n.now().Trial != nil {
					t.Errorf("no wait: %v", err)
				}
				cancel()
				stop()
			}
			n, stop := boot()
			defer stop()
			began := time.Now()
			_, _, err := n.ApplyNewest(t.Context(), offers(three))
			w.must(err)
			if n.now().Trial == nil || time.Since(began) > 0 || n.now().Waits > 0 {
				t.Errorf("the trial began after %v: %+v", time.Since(began), n.now())
			}
		},
		"a person": func(t *testing.T, w *world, boot func() (*Node, func())) {
			n, stop := boot()
			defer stop()
			began := time.Now()
			_, err := apply(n, three, false)
			w.must(err)
			if wait := time.Since(began); n.now().Trial == nil || wait != time.Minute {
				t.Errorf("the trial began after %v: %+v", wait, n.now())
			}
		},
		"a revert": func(t *testing.T, w *world, boot func() (*Node, func())) {
			n, stop := boot()
			defer stop()
			ended := make(chan error, 1)
			go func() {
				_, _, err := n.ApplyNewest(t.Context(), offers(three))
				ended <- err
			}()
			time.Sleep(10 * time.Second) // in the bubble's time
			_, err := n.Revert(t.Context())
			w.must(err)
			began := time.Now()
			if err := <-ended; err == nil || time.Since(began) > judgeEvery || n.now().Trial != nil {
				t.Errorf("after a revert: %v after %v, %+v", err, time.Since(began), n.now())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for _, file := range []string{one, two} {
					_, err := apply(w.boot(nil), file, false)
					w.must(err)
					keep(w.boot(nil))
				}
				wait(t, w, func() (*Node, func()) {
					n := w.boot(nil)
					n.c.Deadline = 5 * time.Minute
					n.c.List = func() []*v1.Pod {
						return append(w.list(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}})
					}
					stop := start(n)
					synctest.Wait() // the pods are delivered
					return n, stop
				})
			})
		})
	}
}

// TestLostPod checks that a bundle fails if a pod of another source becomes unready. A bundle does not fail if that source removes its pod.
func TestLostPod(t *testing.T) {
	pod := func(source, name, uid string, ready v1.ConditionStatus) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "x",
			Annotations: map[string]string{"kubernetes.io/config.source": source}}}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: ready}}
		if uid != "" {
			p.UID = "y"
		}
		return p
	}
	now := []*v1.Pod{pod("file", "log", "", v1.ConditionTrue), pod("bundle", "old", "", v1.ConditionTrue),
		pod("bundle", "web", "", v1.ConditionTrue), pod("bundle", "ill", "", v1.ConditionFalse)}
	next := []*v1.Pod{pod("bundle", "web", "y", ""), pod("bundle", "ill", "y", ""), pod("bundle", "new", "y", "")}
	leaving := pod("bundle", "new", "", v1.ConditionFalse) // a terminating pod of a bundle that has just failed
	leaving.DeletionTimestamp = &metav1.Time{}
	must, ill := chooseMust(append(now[:len(now):len(now)], leaving), next, nil)
	if want := []string{"default/log", "default/new", "default/web"}; !slices.Equal(must, want) || !slices.Equal(ill, []string{"default/ill"}) {
		t.Fatalf("%q, want %q; not Ready %q", must, want, ill)
	}
	wanted := (&set{sourcePods: []desired.SourcePod{{Pod: next[0]}, {Pod: next[1]}, {Pod: next[2]}}}).uids()
	good := []*v1.Pod{now[0], pod("bundle", "web", "y", v1.ConditionTrue), pod("bundle", "new", "y", v1.ConditionTrue)}
	done := pod("bundle", "new", "y", v1.ConditionFalse)
	done.Status.Phase = v1.PodSucceeded
	for name, c := range map[string]struct {
		pods []*v1.Pod
		want int
	}{
		"all Ready":               {good, 0},
		"another one has gone":    {good[1:], 0},
		"another one is ill":      {append([]*v1.Pod{pod("file", "log", "", v1.ConditionFalse)}, good[1:]...), 1},
		"the old instance counts": {append([]*v1.Pod{now[2]}, good[2]), 1},
		"a pod has succeeded":     {append([]*v1.Pod{done}, good[:2]...), 0},
		"nothing runs":            {nil, 2},
	} {
		if got := unready(must, wanted, c.pods); len(got) != c.want {
			t.Errorf("%s: %q, want %d", name, got, c.want)
		}
	}
}

// TestSameBundleAgain applies a bundle again right after it has failed, while the loop has not yet returned to the previous one. The new
// trial has a deadline of its own, and the end of the old one does not end it.
func TestSameBundleAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		file := w.bundle(1, second("bad"))
		w.bad["bad"] = true
		n, stop := w.run()
		defer stop()
		_, err := apply(n, file, false)
		w.must(err)
		time.Sleep(10*time.Second + judgeEvery/2)
		if s, err := n.Status(); err != nil || s.Trial != nil || s.Last == nil || s.Last.Result != Failed {
			t.Fatalf("%+v, %v", s, err)
		}
		_, err = apply(n, file, false)
		w.must(err)
		w.mu.Lock()
		delete(w.bad, "bad")
		w.mu.Unlock()
		time.Sleep(5 * time.Second)
		if s, err := n.Status(); err != nil || s.Current == nil || s.Last.Result != Kept {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// An endingSink delivers nothing before the agent ends.
type endingSink struct{ *world }

func (endingSink) SetObjects(ctx context.Context, _ string, _ []local.DefinedObject, _ []desired.Problem) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestEndDuringDelivery checks that a bundle does not fail because the agent ends while it delivers the pods.
func TestEndDuringDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.boot(nil)
		n.Connect(Pods{Sink: endingSink{w}, List: w.list, Desired: foreign{w}, Objects: noObjects{}}, nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		n.Start(ctx, func(f func() error) { go f() })
		_, err := apply(n, w.bundle(1, nil), false)
		w.must(err)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if s, err := n.Status(); err != nil || s.Trial == nil || len(s.Failed) > 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// A fullSink rejects objects until it has been asked three times, as a full disk does.
type fullSink struct {
	*world
	asked *int
}

func (s fullSink) SetObjects(ctx context.Context, source string, objects []local.DefinedObject, problems []desired.Problem) error {
	if *s.asked++; *s.asked <= 3 {
		return syscall.ENOSPC
	}
	return s.world.SetObjects(ctx, source, objects, problems)
}

func (fullSink) ReportFailure(string, []desired.Problem) {}

// TestDeliveryRecovers checks that a bundle does not fail if its pods cannot be delivered for a short time. It fails at the deadline.
func TestDeliveryRecovers(t *testing.T) {
	for name, asked := range map[string]int{"a while": 0, "always": -1 << 30} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				n := w.boot(nil)
				n.Connect(Pods{Sink: fullSink{w, &asked}, List: w.list, Desired: foreign{w}, Objects: noObjects{}}, nil, nil)
				n.Start(t.Context(), func(f func() error) { go f() })
				_, err := apply(n, w.bundle(1, nil), false)
				w.must(err)
				time.Sleep(time.Hour)
				s, err := n.Status()
				if err != nil || s.Trial != nil || (len(s.Failed) > 0) != (name == "always") {
					t.Errorf("%+v, %v", s, err)
				}
			})
		})
	}
}

// TestJudge checks when a trial ends: after the pods were Ready for long enough without interruption, or at the deadline.
func TestJudge(t *testing.T) {
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	j := judge{healthyFor: 3 * time.Second, deadline: start.Add(10 * time.Second)}
	ill := []string{"default/web (CrashLoopBackOff)"}
	for i, c := range []struct {
		unready []string
		want    verdict
	}{{ill, undecided}, {nil, undecided}, {nil, undecided}, {ill, undecided}, {nil, undecided}, {nil, undecided}, {nil, undecided}, {nil, good}} {
		if got, _ := j.decide(c.unready, start.Add(time.Duration(i)*time.Second)); got != c.want {
			t.Errorf("second %d: %v, want %v", i, got, c.want)
		}
	}
	if got, why := j.decide(ill, start.Add(10*time.Second)); got != bad || !strings.Contains(why, "CrashLoopBackOff") {
		t.Error(got, why)
	}
}
