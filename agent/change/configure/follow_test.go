package configure

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/keys"
)

func configMap(name, text string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string]string{KubeletKey: text}}
}

// follow runs a Follower until the test ends.
func (w *world) follow(r *run, s *apitest.Server) (f *Follower, stop func()) {
	w.Helper()
	client := s.Client(w.T)
	f, err := NewFollower(r.Keeper, client, kube.LinkSignal{}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	return f, func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		client.CloseConnections()
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		w := newWorld(t, "configuration: {configMap: fleet}\n")
		s.Put(configMap("other", kubeletHead+"maxPods: 3\n"))
		r := w.start(guard.Role{})
		_, stop := w.follow(r, s)
		time.Sleep(time.Second)
		if got := r.Show(); got.Follows != "ConfigMap kube-system/fleet" || !strings.Contains(got.FollowProblem, "no such ConfigMap") ||
			got.Assigned != nil {
			t.Errorf("%+v", got)
		}
		s.Put(configMap("fleet", kubeletHead+"maxPodz: 3\n"))
		time.Sleep(time.Second)
		if got := r.Show(); got.Failed == nil || !strings.Contains(got.Failed.Why, "maxPodz: unknown field") || got.FollowProblem != "" {
			t.Errorf("%+v", got)
		}
		s.Put(configMap("fleet", " "))
		time.Sleep(time.Second)
		if got := r.Show(); !strings.Contains(got.FollowProblem, "neither a key") {
			t.Errorf("%+v", got)
		}
		s.Put(configMap("fleet", kubeletHead+"maxPods: 30\n"))
		time.Sleep(time.Second)
		if got := r.Show(); got.Assigned == nil || !strings.Contains(got.Assigned.Kubelet, "30") ||
			got.Assigned.From != "ConfigMap kube-system/fleet" || got.Failed != nil {
			t.Errorf("%+v", got)
		}
		s.Remove(configMap("fleet", ""))
		time.Sleep(time.Second)
		if got := r.Show(); got.Assigned == nil || !strings.Contains(got.FollowProblem, "deleted") {
			t.Errorf("%+v", got)
		}
		stop()
	})
}

// TestFollowAnnotation checks that the Node's annotation can select a ConfigMap in kube-system, but in no other namespace. When the
// annotation is removed, the node returns to its own files.
func TestFollowAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		s.Put(configMap("fleet", kubeletHead+"maxPods: 30\n"))
		w := newWorld(t, "")
		r := w.start(guard.Role{})
		f, stop := w.follow(r, s)
		node := func(text string) *v1.Node {
			return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{keys.FollowConfigMap: text}}}
		}
		f.Node(node("default/fleet"))
		time.Sleep(time.Second)
		if got := r.Show(); got.Assigned != nil || !strings.Contains(got.FollowProblem, "not in kube-system") {
			t.Errorf("%+v", got)
		}
		f.Node(node("fleet"))
		time.Sleep(time.Second)
		if got := r.Show(); got.Assigned == nil || got.FollowProblem != "" {
			t.Fatalf("%+v", got)
		}
		r.beginTrial(t.Context(), r.record.Assigned)
		stop()

		rec, err := trial.Load(w.dir)
		if err != nil {
			t.Fatal(err)
		}
		rec.Accept(time.Now())
		if err := trial.Save(w.dir, rec); err != nil {
			t.Fatal(err)
		}
		r = w.start(guard.Role{})
		if r.cfg.Kubelet.MaxPods != 30 {
			t.Errorf("maxPods %d", r.cfg.Kubelet.MaxPods)
		}
		f, stop = w.follow(r, s)
		time.Sleep(time.Second)
		if got := r.Show(); got.Assigned != nil {
			t.Errorf("the node reverts before the Node was read: %+v", got)
		}
		f.Node(node(""))
		time.Sleep(time.Second)
		if got := r.Show(); got.Assigned == nil || got.Assigned.ID != "local" {
			t.Errorf("%+v", got)
		}
		stop()
	})
}

// TestFollowAndApply checks that an operator's configuration stays in use across restarts until the ConfigMap changes. A reverted
// configuration and a waiting program version are checked in the same way.
func TestFollowAndApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := apitest.New(t), newWorld(t, "configuration: {configMap: fleet}\n")
		s.Put(configMap("fleet", kubeletHead+"maxPods: 30\n"))
		// This helper starts an agent, lets it read the ConfigMap and returns the agent.
		looks := func() *run {
			r := w.start(guard.Role{})
			_, stop := w.follow(r, s)
			time.Sleep(time.Second)
			stop()
			return r
		}
		// This helper makes the trial of the assigned configuration succeed.
		stands := func(r *run, pods int32) {
			t.Helper()
			if !r.beginTrial(t.Context(), r.record.Assigned) {
				t.Fatalf("no trial began: %+v", r.Show())
			}
			if why := w.start(guard.Role{Kind: guard.Trial}).acceptTrial(); why != "" {
				t.Fatal(why)
			}
			if r := looks(); r.cfg.Kubelet.MaxPods != pods || r.Show().Assigned != nil {
				t.Errorf("%d pods, and then %+v", r.cfg.Kubelet.MaxPods, r.Show().Assigned)
			}
		}
		stands(looks(), 30)
		r := looks()
		if err := w.apply(r, kubeletHead+"maxPods: 17\n"); err != nil {
			t.Fatal(err)
		}
		stands(r, 17)
		if got := looks().Show(); !got.Overridden {
			t.Errorf("status does not report that the operator's configuration overrides the ConfigMap: %+v", got)
		}
		s.Put(configMap("fleet", kubeletHead+"maxPods: 31\n"))
		stands(looks(), 31)
		r = looks()
		if _, err := r.Revert(); err != nil || !r.Show().Overridden {
			t.Fatal(err)
		}
		stands(r, 17)

		w.offered(staged(t)) // the agent is killed after the beginning of the trial
		r = looks()
		if got := r.Show(); r.StagedPath() == "" || got.Attempts != 1 {
			t.Errorf("an unchanged ConfigMap replaced a waiting version: %+v", got)
		}
		s.Put(configMap("fleet", kubeletHead+"maxPods: 32\n"))
		r = looks()
		if r.StagedPath() == "" || !r.beginTrial(t.Context(), r.record.Assigned) {
			t.Errorf("a ConfigMap replaced a waiting version: %+v", r.Show())
		}
		for range 2 { // the trial fails, and the failure stays recorded
			r = w.start(guard.Role{After: true, Why: "it crashes"})
			_, stop := w.follow(r, s)
			time.Sleep(time.Second)
			stop()
			if got := r.Show(); got.FailedUpdate == nil || got.Assigned == nil || !strings.Contains(got.Assigned.Kubelet, "32") {
				t.Errorf("%+v", got)
			}
		}
	})
}

// TestWaits checks that a ConfigMap's configuration waits for the link without a time limit. An operator's configuration waits only until
// the node is healthy, for at most maxHealthWait.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "configuration: {configMap: fleet}\n")
		w.link = link.State{Phase: link.Down, Reason: "Unreachable"}
		r := w.start(guard.Role{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		cm := trial.New(kubeletHead+"maxPods: 30\n", "", nil, trial.Source{Namespace: "kube-system", Name: "fleet"}, time.Now())
		if err := r.Offer(cm, false, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := r.Show(); s.Trying || s.Assigned == nil {
			t.Errorf("without a link %+v", s)
		}
		if err := w.apply(r, kubeletHead+"maxPods: 30\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(maxHealthWait - 2*time.Second) // in the bubble's time
		if r.Show().Trying {
			t.Error("an operator's configuration does not wait until the node is healthy")
		}
		time.Sleep(4 * time.Second)
		if !r.Show().Trying {
			t.Error("an operator's configuration waits for the link")
		}
		<-r.end
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWaitsForBundle checks that a configuration waits without a time limit while a bundle is on trial. During its own trial, no trial of a
// bundle can begin.
func TestWaitsForBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.bundle.Store(true)
		r := w.start(guard.Role{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		if err := w.apply(r, kubeletHead+"maxPods: 30\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // in the bubble's time
		if r.Show().Trying || w.isHeld.Load() {
			t.Error("two trials at the same time")
		}
		w.bundle.Store(false)
		time.Sleep(2 * factsInterval)
		if !r.Show().Trying {
			t.Error("the configuration still waits")
		}
		if !w.isHeld.Load() {
			t.Error("the trial of a bundle can begin before the agent has ended")
		}
		<-r.end
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
