package configure

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/keys"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "configure")) }

// TestTrial checks that an agent ends when a trial begins. The next agent uses the configuration on trial and records it as good, and later
// agents use it too.
func TestTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "configuration: {healthyFor: 10s, deadline: 1m}\n")
		first := w.start(guard.Role{})
		if _, err := os.Stat(filepath.Join(w.dir, trial.File)); err == nil || first.Conditions() != nil || first.Problems() != nil {
			t.Error("a node without a remote configuration stores a record or has conditions")
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- first.Run(ctx) }()
		if err := w.apply(first, kubeletHead+"maxPods: 17\n"); err != nil {
			t.Fatal(err)
		}
		again := (*Restart)(nil)
		if err := <-first.end; !errors.As(err, &again) || again.Role.Kind != guard.Guard || again.Role.Deadline != time.Minute {
			t.Fatalf("%v", err)
		}
		if err := w.apply(first, kubeletHead); !errors.Is(err, ErrBusy) {
			t.Errorf("another configuration was accepted during the trial: %v", err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		second := w.start(guard.Role{Kind: guard.Trial})
		if second.cfg.Kubelet.MaxPods != 17 || second.Conditions()[0].Status != v1.ConditionUnknown || !second.Show().Trying {
			t.Errorf("on trial: %+v", second.Show())
		}
		ctx, stop = context.WithCancel(t.Context())
		began := time.Now()
		go func() { ended <- second.Run(ctx) }()
		synctest.Wait()
		w.mu.Lock()
		w.pods[0] = pod("a", false)
		w.mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := second.Show(); !strings.Contains(s.Waiting, "1 pods are not ready") {
			t.Errorf("waits for %q", s.Waiting)
		}
		w.mu.Lock()
		w.pods[0], w.held = pod("a", true), []types.UID{"b"}
		w.mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := second.Show(); !strings.Contains(s.Waiting, "1 pods that ran would end") {
			t.Errorf("waits for %q", s.Waiting)
		}
		w.mu.Lock()
		w.held = nil
		w.mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if s := second.Show(); s.Good.ID != s.Active.ID || s.Good.ID == "local" || time.Since(began) < 15*time.Second {
			t.Errorf("not good: %+v", s)
		}
		stop()
		<-ended
		third := w.start(guard.Role{After: true})
		if third.cfg.Kubelet.MaxPods != 17 || third.Conditions()[0].Status != v1.ConditionTrue {
			t.Errorf("%+v", third.Conditions())
		}
		if want := []string{ReasonTrying, ReasonAccepted}; !slices.Equal(w.recorded(), want) {
			t.Errorf("events %v, want %v", w.recorded(), want)
		}
		if err := w.apply(third, kubeletHead+"maxPods: 17\n"); err != nil || third.Show().Assigned != nil {
			t.Errorf("the same configuration again: %v, %+v", err, third.Show())
		}
		if c, err := third.Revert(); err != nil || !c.IsLocal() || third.Show().Assigned.ID != "local" {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// This helper starts an agent, applies a configuration and begins its trial.
func (w *world) tried(text string) {
	w.Helper()
	r := w.start(guard.Role{})
	if err := w.apply(r, text); err != nil {
		w.Fatal(err)
	}
	if !r.beginTrial(w.Context(), r.record.Assigned) {
		w.Fatal("no trial began")
	}
}

// TestFailures checks that the previous configuration stays in use after each kind of unsuccessful trial.
func TestFailures(t *testing.T) {
	w := newWorld(t, "")
	w.tried(kubeletHead + "maxPods: 17\n")
	r := w.start(guard.Role{After: true, Why: "the port is taken"})
	if s := r.Show(); r.cfg.Kubelet.MaxPods != 110 || s.Active.ID != "local" || s.Failed == nil ||
		s.Failed.Why != "the port is taken" || s.Assigned != nil {
		t.Errorf("%+v", s)
	}
	if c := r.Conditions(); c[0].Status != v1.ConditionFalse || !strings.Contains(c[0].Message, "the port is taken") ||
		!slices.ContainsFunc(r.Problems(), func(p string) bool { return strings.Contains(p, "the port") }) {
		t.Errorf("%+v", c)
	}
	if a := r.Annotations()[keys.ConfigurationStatus]; !strings.Contains(a, `"error":"configuration`) ||
		!strings.Contains(a, `"activeID":"local"`) {
		t.Error(a)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Collectors()...)
	if got, err := registry.Gather(); err != nil || len(got) != 6 {
		t.Errorf("%d metrics, %v", len(got), err)
	}
	w.tried(kubeletHead + "maxPods: 18\n")
	r = w.start(guard.Role{}) // by the service manager, after kill -9
	if s := r.Show(); s.Active.ID != "local" || s.Assigned == nil || s.Failed != nil || s.Attempts != 1 {
		t.Errorf("interrupted: %+v", s)
	}
	// A configuration that cannot be loaded fails its trial with that error.
	{
		s := Begin(guard.Role{Kind: guard.Trial}, w.args)
		rec, err := trial.Load(w.dir)
		if err != nil {
			t.Fatal(err)
		}
		rec.Begin(trial.Facts{}, "", time.Now())
		rec.Assigned = trial.New(kubeletHead+"maxPods: -3\n", "", nil, trial.Source{}, time.Now())
		if err := trial.Save(w.dir, rec); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Load(); err == nil || !strings.Contains(err.Error(), "maxPods") {
			t.Error(err)
		}
	}
}

// TestChecks checks that an invalid configuration is neither tried nor kept. The error names the fields.
func TestChecks(t *testing.T) {
	w := newWorld(t, "configuration: {consent: [volumePluginDir, cgroupRoot]}\n")
	r := w.start(guard.Role{})
	for text, want := range map[string]string{
		kubeletHead + "maxPods: 1\n":                       "maxPods: Invalid value: 1: fewer than the 2 pods",
		kubeletHead + "podCIDR: 10.9.0.0/24\n":             "podCIDR: Forbidden",
		kubeletHead + "cgroupRoot: /elsewhere\n":           "cgroupRoot: Forbidden: this node has 2 pods, and",
		kubeletHead + "port: -1\n":                         "port: Invalid value",
		edgeHead + "configuration: {consent: [podCIDR]}\n": "edge.configuration: Forbidden",
		"kind: Pod\n": "want one KubeletConfiguration",
		"":            "neither a KubeletConfiguration",
	} {
		if err := w.apply(r, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	pipe, text := filepath.Join(w.dir, "pipe"), filepath.Join(w.dir, "text")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(text, []byte("-----BEGIN CERTIFICATE-----\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"/nonexistent": "no such file", text: "it holds no certificate", pipe: "not a regular file", "/dev/zero": "not a regular file", w.dir: "not a regular file"} {
		if err := w.apply(r, kubeletHead+"authentication: {x509: {clientCAFile: "+file+"}}\n",
			"authentication.x509.clientCAFile"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s as authorities: %v, want %s", file, err, want)
		}
	}
	if err := w.apply(r, kubeletHead, "nonsense"); err == nil {
		t.Error("consent to an unknown field is accepted")
	}
	if s := r.Show(); s.Assigned != nil || s.Failed != nil || len(s.History) != 0 {
		t.Errorf("kept: %+v", s)
	}
	if _, err := (Local{r.Keeper}).Apply([]byte(kubeletHead+"volumePluginDir: /elsewhere\n"), "f", api.ConfigurationOptions{Dry: true}); err != nil {
		t.Errorf("the node consented: %v", err)
	}
	if err := w.apply(r, kubeletHead+"podCIDR: 10.9.0.0/24\n", "podCIDR"); err != nil {
		t.Errorf("consent by an operator: %v", err)
	}
	if _, err := (Local{w.start(guard.Role{}).Keeper}).Revert(); err == nil {
		t.Error("the revert succeeded without a previous configuration")
	}
}

// TestUnusable checks that the agent starts even if its good configuration or its trial record can no longer be used.
func TestUnusable(t *testing.T) {
	w := newWorld(t, "")
	w.tried(kubeletHead + "maxPods: 17\n")
	rec, err := trial.Load(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	rec.Accept(time.Now())
	rec.Good = trial.New(kubeletHead+"gone: 1\n", "", nil, trial.Source{}, time.Now())
	if err := trial.Save(w.dir, rec); err != nil {
		t.Fatal(err)
	}
	r := w.start(guard.Role{})
	if s := r.Show(); r.cfg.Kubelet.MaxPods != 110 || s.Active.ID != "local" || !strings.Contains(s.Problem, "gone: unknown field") {
		t.Errorf("%+v", s)
	}
	if err := os.WriteFile(filepath.Join(w.dir, trial.File), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = w.start(guard.Role{})
	if s := r.Show(); s.Active.ID != "local" || s.Problem == "" {
		t.Errorf("%+v", s)
	}
	if err := w.apply(r, kubeletHead+"maxPods: 18\n"); err != nil {
		t.Errorf("the next one: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, trial.File+".broken")); err != nil {
		t.Error(err)
	}
	newer := []byte(`{"format":9,"readBy":9,"good":[]}`)
	if err := os.WriteFile(filepath.Join(w.dir, trial.File), newer, 0o600); err != nil {
		t.Fatal(err)
	}
	r = w.start(guard.Role{})
	if s := r.Show(); s.Active.ID != "local" || !strings.Contains(s.Problem, "newer islet") {
		t.Errorf("%+v", s)
	}
	if err := w.apply(r, kubeletHead+"maxPods: 19\n"); err == nil ||
		!strings.Contains(err.Error(), "install that version, or remove the file") {
		t.Errorf("over the record of a newer islet: %v", err)
	}
	if have, err := os.ReadFile(filepath.Join(w.dir, trial.File)); !bytes.Equal(have, newer) {
		t.Errorf("%s, %v", have, err)
	}
}

// This helper applies the given configurations one after the other and makes each trial succeed. The last one becomes the good
// configuration.
func (w *world) keeps(texts ...string) {
	w.Helper()
	for _, text := range texts {
		w.tried(text)
		if why := w.start(guard.Role{Kind: guard.Trial}).acceptTrial(); why != "" {
			w.Fatal(why)
		}
	}
}

// TestLeftOut checks that a new configuration is rejected if it omits a field that was set with consent. The error says what to write.
func TestLeftOut(t *testing.T) {
	w := newWorld(t, "")
	r := w.start(guard.Role{})
	if err := w.apply(r, kubeletHead+"podCIDR: 10.9.0.0/24\n", "podCIDR"); err != nil || !r.beginTrial(t.Context(), r.record.Assigned) {
		t.Fatalf("no trial began: %v", err)
	}
	if why := w.start(guard.Role{Kind: guard.Trial}).acceptTrial(); why != "" {
		t.Fatal(why)
	}
	r = w.start(guard.Role{})
	if err := w.apply(r, kubeletHead+"maxPods: 17\n"); err == nil ||
		!strings.Contains(err.Error(), "set it to 10.9.0.0/24, which is in use now, or name it in configuration.consent") {
		t.Errorf("left out: %v", err)
	}
	if err := w.apply(r, kubeletHead+"podCIDR: 10.10.0.0/24\n"); err == nil || !strings.Contains(err.Error(), ": leave it out") {
		t.Errorf("another value: %v", err)
	}
	if err := w.apply(r, kubeletHead+"podCIDR: 10.9.0.0/24\nmaxPods: 17\n"); err != nil {
		t.Errorf("kept: %v", err)
	}
}

// TestUnfit checks that an agent uses the previous configuration when it cannot run with the good one on this host. If there is no previous
// one, the agent uses the node's own files. It reports the problem, and restarts at growing intervals to retry the good configuration.
func TestUnfit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.keeps(kubeletHead+"maxPods: 16\n", kubeletHead+"maxPods: 17\n")
		good, taken := w.start(guard.Role{}), errors.New("the port is taken")
		w.forget()
		role := guard.Role{Why: "it crashes", After: true}
		for i, want := range []int32{16, 110} {
			next, other := good.c.Start.fallBack(taken)
			if i > 0 {
				next, other = w.start(role).c.Start.fallBack(errors.New("swap is on"))
			}
			if !other {
				t.Fatal("fallBack returned no other configuration")
			}
			role, next.After = next, true
			r := w.start(role)
			s := r.Show()
			if r.cfg.Kubelet.MaxPods != want || s.Good.ID != good.Show().Good.ID || s.Active.ID == s.Good.ID ||
				!strings.Contains(s.Problem, "cannot be used: the port is taken") || role.Fallbacks != 1 {
				t.Errorf("%d pods, %+v, %+v", r.cfg.Kubelet.MaxPods, s, role)
			}
			if c := r.Conditions(); c[0].Status != v1.ConditionFalse ||
				!strings.HasPrefix(c[0].Message, "using configuration "+r.activeConfiguration().Name()+"; ") {
				t.Errorf("%+v", c)
			}
		}
		if slices.Contains(w.recorded(), ReasonAccepted) || !slices.Contains(w.recorded(), ReasonFailed) {
			t.Errorf("events %v", w.recorded())
		}
		if _, other := w.start(role).c.Start.fallBack(taken); other {
			t.Error("fallBack returned a configuration after the node's own files")
		}
		for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			r, began, again := w.start(role), time.Now(), (*Restart)(nil)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- r.Run(ctx) }()
			if err := <-r.end; !errors.As(err, &again) || time.Since(began) != wait*time.Minute {
				t.Fatalf("after %s: %v", time.Since(began), err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			again.Role.After = true
			if r = w.start(again.Role); r.cfg.Kubelet.MaxPods != 17 || r.Show().Problem != "" || r.retryDelay() != 0 {
				t.Errorf("the good configuration is usable again: %+v", r.Show())
			}
			role, _ = r.c.Start.fallBack(taken)
		}
		for name, role := range map[string]guard.Role{"on trial": {Kind: guard.Trial}, "its own files": {}} {
			w := newWorld(t, "")
			if role.Kind == guard.Trial {
				w.tried(kubeletHead + "maxPods: 16\n")
			}
			if _, other := w.start(role).c.Start.fallBack(taken); other {
				t.Errorf("%s: fallBack returned another configuration", name)
			}
		}
	})
}

// TestUnfitOnTrial checks that a node can try a new configuration although it cannot use its good one. The node keeps the result of the
// trial if the good configuration is still unusable afterwards.
func TestUnfitOnTrial(t *testing.T) {
	w := newWorld(t, "")
	w.keeps(kubeletHead + "maxPods: 17\n")
	role, _ := w.start(guard.Role{}).c.Start.fallBack(errors.New("the port is taken"))
	r := w.start(role)
	if err := w.apply(r, kubeletHead+"maxPods: 18\n"); err != nil || !r.beginTrial(t.Context(), r.record.Assigned) {
		t.Fatal(err)
	}
	if r.restartAgent(); len(r.end) != 1 {
		t.Error("the agent restarts during a trial")
	}
	role, _ = w.load(guard.Role{After: true, Why: "it crashes"}).fallBack(errors.New("the port is taken"))
	if s := w.start(role).Show(); s.Failed == nil || s.Failed.Why != "it crashes" || s.Active.ID != "local" || s.Good.ID == "local" {
		t.Errorf("%+v", s)
	}
	r = w.start(role)
	if r.restartAgent(); r.beginTrial(t.Context(), r.record.Assigned) || r.Offer(trial.New(kubeletHead, "", nil, trial.Source{}, time.Now()), true, false) == nil {
		t.Error("a trial or an offer was accepted by an agent that is restarting")
	}
}

// TestUnread checks that an agent leaves its trial record in place when it cannot read the record. The next start can read it.
func TestUnread(t *testing.T) {
	w := newWorld(t, "")
	w.tried(kubeletHead + "maxPods: 17\n")
	if why := w.start(guard.Role{Kind: guard.Trial}).acceptTrial(); why != "" {
		t.Fatal(why)
	}
	s := Begin(guard.Role{}, w.args)
	cfg, _, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	s.record, s.recordError = trial.Record{}, &fs.PathError{Op: "open", Path: "record", Err: syscall.EMFILE}
	r := w.open("0.1.0", s, cfg)
	if err := w.apply(r, kubeletHead+"maxPods: 18\n"); !errors.Is(err, syscall.EMFILE) || r.Show().Assigned != nil || r.Show().Problem == "" {
		t.Errorf("%v, %+v", err, r.Show())
	}
	if r := w.start(guard.Role{}); r.cfg.Kubelet.MaxPods != 17 || r.Show().Problem != "" {
		t.Errorf("%+v", r.Show())
	}
}

// TestPods checks that ended and deleted pods are not counted. A pod that was ready only under an earlier agent does not count as ready.
func TestPods(t *testing.T) {
	ended, gone, evicted := pod("ended", false), pod("gone", true), pod("evicted", false)
	ended.Status.Phase, evicted.Status.Phase, evicted.Status.Reason = v1.PodFailed, v1.PodFailed, "Evicted"
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	var f trial.Facts
	addPodFacts(&f, []*v1.Pod{pod("a", true), pod("b", false), pod("c", true), ended, gone, evicted}, func(p *v1.Pod) bool { return p.UID != "c" })
	if len(f.Pods) != 3 || !f.Pods["a"] || f.Pods["b"] || f.Pods["c"] || len(f.Rejected) != 1 {
		t.Errorf("%+v", f)
	}
}

// TestKeptPower checks an agent whose stored configuration sets protected fields without consent, because islet did not require consent at
// that time. The agent uses the configuration unchanged, islet status lists the fields, and the configuration can be reverted.
func TestKeptPower(t *testing.T) {
	w := newWorld(t, "configuration: {healthyFor: 1s, deadline: 2s}\n")
	old := trial.New(kubeletHead+"authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\nmaxPods: 7\n", "", nil, trial.Source{Namespace: "kube-system", Name: "c"}, time.Now())
	if err := trial.Save(w.dir, trial.Record{Good: old}); err != nil {
		t.Fatal(err)
	}
	r := w.start(guard.Role{})
	if k := &r.cfg.Kubelet; !*k.Authentication.Anonymous.Enabled || k.Authorization.Mode != "AlwaysAllow" || k.MaxPods != 7 {
		t.Errorf("the kept configuration is not used: %+v", k)
	}
	if p := strings.Join(r.Problems(), "\n"); !strings.Contains(p,
		"changes authentication.anonymous.enabled, authorization.mode, which needs consent") {
		t.Errorf("problems: %s", p)
	}
	wider := trial.New(old.Kubelet+"readOnlyPort: 10255\n", "", nil, old.Source, time.Now())
	if err := r.Offer(wider, false, false); err == nil || !strings.Contains(err.Error(), "readOnlyPort: Forbidden") {
		t.Errorf("more power without consent: %v", err)
	}
	if _, err := r.Revert(); err != nil {
		t.Errorf("back to the node's own files: %v", err)
	}
}

// TestVetoed checks that a trial is repeated if it failed only because of pods. The repeated trial ignores these pods.
func TestVetoed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "configuration: {healthyFor: 10s, deadline: 1m}\n")
		w.pods[1].Spec.Containers = []v1.Container{{ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{}}}}}
		w.tried(kubeletHead + "maxPods: 17\n")
		r := w.start(guard.Role{After: true, Why: "1 pods are not ready that were: default/a", Pods: []string{"a"}})
		if s := r.Show(); s.Assigned == nil || s.Failed != nil || len(s.History) != 1 || !s.History[0].Interrupted ||
			!strings.Contains(s.History[0].Why, "default/a: the trial is repeated without regard to these pods and pressures") {
			t.Fatalf("%+v", s)
		}
		if !r.beginTrial(t.Context(), r.record.Assigned) {
			t.Fatal("no second trial began")
		}
		second := w.start(guard.Role{Kind: guard.Trial})
		w.mu.Lock()
		w.pods[0] = pod("a", false)
		w.mu.Unlock()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- second.Run(ctx) }()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if s := second.Show(); s.Good.ID != s.Active.ID || s.Good.ID == "local" {
			t.Errorf("not good: %+v", s)
		}
		stop()
		<-ended
	})
}
