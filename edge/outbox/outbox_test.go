package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

// A world is an API server and a node without containers. The test sets the states of the containers.
type world struct {
	*testing.T
	*apitest.Server
	box    *Outbox
	wanted *desired.Desired
	path   string
	spoken atomic.Bool
	retry  chan struct{}
	before func(context.Context) error // called before each request of the outbox; may be nil
	forget func(types.UID) error       // called before a pod is forgotten; may be nil
	end    func()
}

func in(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, Server: apitest.New(t), path: filepath.Join(t.TempDir(), "islet.db"), retry: make(chan struct{}, 1)}
		w.spoken.Store(true)
		w.start()
		t.Cleanup(func() { w.end() })
		synctest.Wait()
		test(w)
	})
}

func (w *world) start() {
	w.Helper()
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(context.Background(), w.path, log)
	if err != nil {
		w.Fatal(err)
	}
	if w.wanted, err = desired.New(desired.Config{Store: db, Poke: func(types.UID) {}, Log: log}); err != nil {
		w.Fatal(err)
	}
	client, wanted := w.Client(w.T), w.wanted
	told := client
	if w.before != nil {
		told = w.gated()
	}
	w.box, err = New(Config{
		Client: told, Node: "n", NodeUID: func() types.UID { return "node-uid" }, SourcesReported: w.spoken.Load,
		IsWanted: func(uid types.UID) bool { _, ok := wanted.Get(uid); return ok }, Retry: w.retry, Log: log,
		Forget: func(ctx context.Context, uid types.UID) error {
			if w.forget != nil {
				if err := w.forget(uid); err != nil {
					return err
				}
			}
			return wanted.Forget(ctx, uid)
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	api, err := source.NewAPI(source.APIConfig{Client: client, Node: "n", Sink: wanted, Observer: w.box, Log: log})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	box := w.box
	go func() { ended <- box.Run(ctx) }()
	go func() { ended <- api.Run(ctx) }()
	w.end = func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				w.Error(err)
			}
		}
		client.CloseConnections()
		if err := db.Close(); err != nil {
			w.Error(err)
		}
	}
}

// This method returns a client that first calls the hook w.before for each request. The request is not sent if w.before returns an error.
func (w *world) gated() *kube.Client {
	to := &rest.Config{Host: "http://127.0.0.1:1"}
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return to, nil }, Dial: w.Dial, BeforeRequest: w.before})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.CloseConnections)
	return c
}

func bound(name string) *v1.Pod {
	return podtest.New(name, podtest.UID(""), podtest.Node("n"), podtest.Image("a:1"))
}

// bind creates a pod on the API server and returns the pod as the node receives it.
func (w *world) bind(name string) *v1.Pod {
	w.Helper()
	w.Put(bound(name))
	synctest.Wait()
	p, ok := w.wanted.Get(w.Pod("default", name).UID)
	if !ok {
		w.Fatal("the node did not receive", name)
	}
	return p.Pod
}

func static(name, hash string) *v1.Pod {
	p := bound(name)
	podtest.UID(hash)(p)
	podtest.Source("file")(p)
	podtest.Annotation(keys.ConfigHash, hash)(p)
	return p
}

func status(phase v1.PodPhase, message string) *v1.PodStatus {
	s := &v1.PodStatus{Phase: phase, Message: message}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for _, t := range []v1.PodConditionType{v1.PodReady, v1.PodScheduled} {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: t,
			Status: v1.ConditionStatus(fmt.Sprint(phase == v1.PodRunning)), LastTransitionTime: now})
	}
	return s
}

func (w *world) shown(name string) string {
	p := w.Pod("default", name)
	if p == nil {
		return "gone"
	}
	return strings.TrimSpace(string(p.Status.Phase) + " " + p.Status.Message)
}

func (w *world) patches() int { return w.Requests("PATCH pods/status") }

func (w *world) fail(err error) {
	f := func(rw http.ResponseWriter, r *http.Request) bool {
		if err != nil {
			w.WriteError(rw, r, err)
		}
		return err != nil
	}
	w.Fault.Store(&f)
}

func TestWhatUsersWaitForIsSentAtOnce(t *testing.T) {
	in(t, func(w *world) {
		p := w.bind("a")
		w.box.Put(p, status(v1.PodPending, ""))
		synctest.Wait()
		if w.patches() != 0 || w.box.Pending() != 1 {
			t.Error("the starting state may be delayed, but must be sent")
		}
		w.box.Put(p, status(v1.PodRunning, ""))
		synctest.Wait()
		if w.shown("a") != "Running" || w.patches() != 1 || w.box.Pending() != 0 {
			t.Error(w.shown("a"), w.patches(), w.box.Pending())
		}
		for i := range 20 {
			w.box.Put(p, status(v1.PodRunning, fmt.Sprint(i)))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if w.shown("a") != "Running 19" || w.patches() != 2 {
			t.Error(w.shown("a"), w.patches())
		}
		before := w.Total()
		time.Sleep(time.Hour)
		if w.Total() != before || w.box.Pending() != 0 {
			t.Error("requests were sent without a change")
		}
	})
}

// TestFirstWordsComeLast checks that few requests are sent when pods start together. Most pods are reported for the first time when they
// are running. A pod that stays in the starting state is reported too, although other requests are always pending.
func TestFirstWordsComeLast(t *testing.T) {
	in(t, func(w *world) {
		slow := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch {
				time.Sleep(100 * time.Millisecond)
			}
			return false
		}
		w.Fault.Store(&slow)
		var pods []*v1.Pod
		for i := range 20 {
			pods = append(pods, w.bind(fmt.Sprint("p", i)))
		}
		for _, p := range pods {
			w.box.Put(p, status(v1.PodPending, ""))
		}
		time.Sleep(settleTime + 150*time.Millisecond)
		for _, p := range pods {
			w.box.Put(p, status(v1.PodRunning, ""))
		}
		time.Sleep(time.Minute)
		if n := w.patches(); n > len(pods)+3 || w.box.Pending() != 0 { // two or three pods were reported before they ran
			t.Errorf("%d requests for %d pods, %d are pending", n, len(pods), w.box.Pending())
		}

		stays := w.bind("stays")
		w.box.Put(stays, status(v1.PodPending, ""))
		for i := 0; w.shown("stays") != "Pending"; i++ {
			for _, p := range pods { // more pods than four concurrent requests can report
				w.box.Put(p, status([]v1.PodPhase{v1.PodFailed, v1.PodRunning}[i%2], ""))
			}
			time.Sleep(90 * time.Millisecond)
			if i > 1000 {
				t.Fatal("the status of a pod that does not start is never sent")
			}
		}
		w.Fault.Store(nil)
		time.Sleep(time.Minute)
	})
}

// TestReadySoon checks that a pod whose probe succeeds soon is reported once. A pod that stays or becomes unready is reported too.
func TestReadySoon(t *testing.T) {
	in(t, func(w *world) {
		runs := func(phase v1.PodPhase, ready bool) *v1.PodStatus {
			s := status(phase, "")
			s.Conditions[0].Status = v1.ConditionFalse
			if ready {
				s.Conditions[0].Status = v1.ConditionTrue
			}
			if phase == v1.PodRunning {
				s.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Ready: ready,
					State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
			}
			return s
		}
		shows := func(name string) string {
			return fmt.Sprint(w.shown(name), " ", isReady(&w.Pod("default", name).Status))
		}
		quick, slow := w.bind("quick"), w.bind("slow")
		for _, p := range []*v1.Pod{quick, slow} {
			w.box.Put(p, runs(v1.PodPending, false))
			time.Sleep(100 * time.Millisecond)
			w.box.Put(p, runs(v1.PodRunning, false))
		}
		time.Sleep(settleTime / 2)
		w.box.Put(quick, runs(v1.PodRunning, true))
		synctest.Wait()
		if n := w.patches(); n != 1 || shows("quick") != "Running true" {
			t.Errorf("%d requests for one that is ready, it is %s", n, shows("quick"))
		}
		time.Sleep(settleTime)
		if n := w.patches(); n != 2 || shows("slow") != "Running false" {
			t.Errorf("%d requests, the slow one is %s", n, shows("slow"))
		}
		w.box.Put(quick, runs(v1.PodRunning, false))
		w.box.Put(slow, runs(v1.PodRunning, true))
		synctest.Wait()
		if n := w.patches(); n != 4 || shows("quick") != "Running false" || shows("slow") != "Running true" {
			t.Errorf("%d requests, %s, %s", n, shows("quick"), shows("slow"))
		}
	})
}

func TestStatusIsTheNodesToTell(t *testing.T) {
	in(t, func(w *world) {
		p := w.bind("a")
		w.box.Put(p, status(v1.PodRunning, ""))
		synctest.Wait()
		a := w.Pod("default", "a")
		a.Status.Message = "someone else's"
		a.Status.Conditions = append(a.Status.Conditions, v1.PodCondition{Type: "gate", Status: v1.ConditionTrue})
		w.Put(a)
		time.Sleep(10 * time.Second)
		if a = w.Pod("default", "a"); a.Status.Message != "" || len(a.Status.Conditions) != 3 {
			t.Errorf("%+v", a.Status)
		}
	})
}

func TestEndIsAcknowledged(t *testing.T) {
	in(t, func(w *world) {
		p, ctx := w.bind("a"), t.Context()
		w.box.Put(p, status(v1.PodRunning, ""))
		synctest.Wait()
		w.Terminate(p, 5)
		time.Sleep(5 * time.Second)
		w.Disconnect()
		w.CloseConnections()
		w.box.Put(p, status(v1.PodFailed, "last words"))
		if err := w.box.Finish(ctx, p); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if _, ok := w.wanted.Get(p.UID); !ok {
			t.Error("the pod was forgotten before the API server had its status")
		}
		w.Reconnect()
		w.retry <- struct{}{}
		time.Sleep(time.Minute) // longer than every back-off
		// The response to an earlier list request may have added the pod again, as a deleting pod. The pod's worker then calls Finish
		// again.
		if d, ok := w.wanted.Get(p.UID); ok && d.Deleting {
			if err := w.box.Finish(ctx, p); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
		}
		if _, ok := w.wanted.Get(p.UID); ok || w.shown("a") != "gone" {
			t.Error("not acknowledged", ok, w.shown("a"))
		}

		// A pod that was replaced meanwhile is not mistaken for the new pod.
		p = w.bind("b")
		w.Disconnect()
		w.CloseConnections()
		w.Remove(p)
		w.Put(bound("b"))
		w.Reconnect()
		time.Sleep(time.Minute) // longer than every back-off
		if d, ok := w.wanted.Get(p.UID); !ok || !d.Deleting {
			t.Error("the replaced pod is not being deleted:", d)
		}
		w.box.Put(p, status(v1.PodFailed, "of the old one"))
		if err := w.box.Finish(ctx, p); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // longer than every back-off
		if _, ok := w.wanted.Get(p.UID); ok || w.shown("b") != "" {
			t.Error(ok, w.shown("b"))
		}
	})
}

// TestStoreIsNotTheServer checks that the statuses of all other pods are sent while the node's own store fails or blocks for many pods. A
// pod that could not be forgotten is forgotten later.
func TestStoreIsNotTheServer(t *testing.T) {
	for name, blocks := range map[string]bool{"fails": false, "blocks": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				var attempts atomic.Int32
				broken, repaired := errors.New("database or disk is full"), make(chan struct{})
				w.forget = func(types.UID) error {
					attempts.Add(1)
					if blocks {
						<-repaired
						return nil
					}
					select {
					case <-repaired:
						return nil
					default:
						return broken
					}
				}
				var ended []*v1.Pod
				for i := range 2 * maxParallel {
					p := w.bind(fmt.Sprint("ended", i))
					w.box.Put(p, status(v1.PodRunning, ""))
					synctest.Wait()
					w.Terminate(p, 5)
					synctest.Wait()
					w.box.Put(p, status(v1.PodFailed, ""))
					if err := w.box.Finish(t.Context(), p); err != nil {
						t.Error(err)
					}
					ended = append(ended, p)
				}
				time.Sleep(time.Minute)
				p := w.bind("other")
				for i := range 10 {
					w.box.Put(p, status([]v1.PodPhase{v1.PodRunning, v1.PodPending}[i%2], fmt.Sprint(i)))
					time.Sleep(10 * time.Second)
					if got := w.shown("other"); !strings.HasSuffix(got, fmt.Sprint(" ", i)) {
						t.Errorf("after %d changes, the server has %q", i+1, got)
					}
				}
				time.Sleep(time.Hour)
				if n := attempts.Load(); n < int32(len(ended)) || n > 30*int32(len(ended)) {
					t.Errorf("%d attempts in an hour", n)
				}
				if n := w.box.Pending(); !blocks && n != len(ended) {
					t.Errorf("%d pods are pending", n)
				}
				close(repaired)
				time.Sleep(2 * maxRefusedRetry)
				for _, p := range ended {
					if _, ok := w.wanted.Get(p.UID); ok {
						t.Errorf("pod %s is not forgotten", p.Name)
					}
				}
				if n := w.box.Pending(); n != 0 {
					t.Errorf("%d pods are pending", n)
				}
			})
		})
	}
}

// TestHas checks that Has reports whether the API server has a pod, also while the pod is being deleted. Before the first list, Has
// returns true.
func TestHas(t *testing.T) {
	in(t, func(w *world) {
		p := w.bind("a")
		if !w.box.Has(p.UID) || w.box.Has("other") {
			t.Error("the server has a, and no other pod")
		}
		w.box.Put(p, status(v1.PodRunning, "1"))
		w.Terminate(bound("a"), 30)
		synctest.Wait()
		if !w.box.Has(p.UID) {
			t.Error("the server still has a pod that is ending")
		}
		w.Remove(bound("a"))
		synctest.Wait()
		if w.box.Has(p.UID) {
			t.Error("the server has no more pod")
		}
		w.end()
		w.Disconnect()
		w.start()
		if !w.box.Has(p.UID) {
			t.Error("whether the server has the pod is not known yet")
		}
		w.Reconnect()
		time.Sleep(time.Minute)
		if w.box.Has(p.UID) {
			t.Error("the server has listed its pods without this one")
		}
	})
}

func TestMirrorPods(t *testing.T) {
	in(t, func(w *world) {
		s := static("s-n", "1")
		w.box.Put(s, status(v1.PodRunning, ""))
		synctest.Wait()
		m := w.Pod("default", "s-n")
		if m == nil || m.Annotations[v1.MirrorPodAnnotationKey] != "1" || m.OwnerReferences[0].UID != "node-uid" ||
			w.shown("s-n") != "Running" {
			t.Fatalf("%+v", m)
		}
		w.Terminate(m, 30)
		time.Sleep(time.Second)
		if again := w.Pod("default", "s-n"); again == nil || again.UID == m.UID || w.shown("s-n") != "Running" {
			t.Error("not made again")
		}
		w.box.Put(static("s-n", "2"), status(v1.PodRunning, "other"))
		time.Sleep(time.Second)
		if m := w.Pod("default", "s-n"); m.Annotations[v1.MirrorPodAnnotationKey] != "2" || w.shown("s-n") != "Running other" {
			t.Errorf("%+v", m)
		}
		w.end()
		w.spoken.Store(false)
		w.start()
		time.Sleep(time.Minute)
		if w.shown("s-n") != "Running other" {
			t.Error("deleted before its source has delivered its set")
		}
		w.spoken.Store(true)
		time.Sleep(10 * time.Second)
		if w.shown("s-n") != "gone" {
			t.Error("the mirror pod was kept although no source has the pod")
		}
		// A pod of the API server with the name of a mirror pod is not modified.
		w.bind("s-n")
		w.box.Put(s, status(v1.PodRunning, "static"))
		time.Sleep(time.Hour)
		if w.shown("s-n") != "" || w.Requests("POST pods") > 30 {
			t.Error(w.shown("s-n"), w.Requests("POST pods"))
		}
	})
}

// TestSilentServerIsNoBusyLoop checks that the outbox sends a limited number of requests to a server that accepts them and never answers.
func TestSilentServerIsNoBusyLoop(t *testing.T) {
	in(t, func(w *world) {
		var pods []*v1.Pod
		for i := range 30 {
			pods = append(pods, w.bind(fmt.Sprint("p", i)))
			w.box.Put(pods[i], status(v1.PodRunning, ""))
		}
		time.Sleep(time.Minute)
		silent := apitest.NeverAnswer
		w.Fault.Store(&silent)
		w.CloseConnections()
		for range 10 {
			for _, p := range pods {
				w.box.Put(p, status(v1.PodFailed, fmt.Sprint("at ", time.Now().Unix())))
			}
			before := w.Total()
			time.Sleep(time.Minute)
			if n := w.Total() - before; n > 12 {
				t.Errorf("%d requests a minute", n)
			}
		}
		newest := status(v1.PodFailed, "newest")
		for _, p := range pods {
			w.box.Put(p, newest)
		}
		w.Fault.Store(nil)
		time.Sleep(time.Minute) // an unanswered request and a pause
		for i := range pods {
			if got := w.shown(fmt.Sprint("p", i)); got != "Failed newest" {
				t.Error(i, got)
			}
		}
	})
}

func TestFailuresAreNoBusyLoop(t *testing.T) {
	for _, err := range []error{apierrors.NewInternalError(fmt.Errorf("broken")), apierrors.NewTooManyRequests("slow down", 3),
		apierrors.NewUnauthorized("who?"), apierrors.NewForbidden(v1.Resource("pods"), "n", nil),
		apierrors.NewConflict(v1.Resource("pods"), "n", nil)} {
		t.Run(string(apierrors.ReasonForError(err)), func(t *testing.T) {
			in(t, func(w *world) {
				for i := range 5 {
					w.box.Put(w.bind(fmt.Sprint("p", i)), status(v1.PodRunning, ""))
				}
				w.box.Put(static("s-n", "1"), status(v1.PodRunning, ""))
				time.Sleep(time.Minute)
				w.fail(err)
				for i := range 5 {
					p, _ := w.wanted.Get(w.Pod("default", fmt.Sprint("p", i)).UID)
					w.box.Put(p.Pod, status(v1.PodFailed, "news"))
				}
				w.Terminate(static("s-n", "1"), 5)
				time.Sleep(10 * time.Minute)
				before := w.Total()
				time.Sleep(10 * time.Minute)
				if n := (w.Total() - before) / 10; n > 30 {
					t.Errorf("%d requests a minute", n)
				}
				w.fail(nil)
				time.Sleep(6 * time.Minute)
				if w.shown("p4") != "Failed news" || w.shown("s-n") != "Running" {
					t.Error(w.shown("p4"), w.shown("s-n"))
				}
			})
		})
	}
}
