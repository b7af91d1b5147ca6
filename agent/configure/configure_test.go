package configure

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/agent/eventtest"
	"github.com/islet-edge/islet/agent/guard"
	"github.com/islet-edge/islet/agent/trial"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/keys"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "configure")) }

const (
	kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\n"
	edgeHead    = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"
)

// A world is a node whose agent is started again and again.
type world struct {
	*testing.T
	args []string
	dir  string

	mu     sync.Mutex
	events []string
	facts  Node
	link   link.State
	press  []v1.NodeConditionType
	pods   []*v1.Pod
}

func newWorld(t *testing.T, edge string) *world {
	dir := t.TempDir()
	w := &world{T: t, dir: dir, link: link.State{Phase: link.Standalone}}
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(edgeHead+edge), 0o600); err != nil {
		t.Fatal(err)
	}
	w.args = []string{"--hostname-override=n", "--state-dir=" + dir, "--run-dir=" + dir + "/run", "--root-dir=" + dir + "/root", "--fail-swap-on=false", "--edge-config=" + dir + "/edge.yaml"}
	w.pods = []*v1.Pod{pod("a", true), pod("b", true)}
	w.facts = Node{
		Link: func() link.State { return w.link }, Ready: func(context.Context) []string { return nil }, Known: func() error { return nil },
		Looked: func() bool { return true }, Pressures: func() []v1.NodeConditionType { return w.press }, Reach: func(context.Context) error { return errors.New("no port") },
		Pods: func() []*v1.Pod {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.pods)
		},
	}
	return w
}

func pod(name string, ready bool) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: v1.PodStatus{Phase: v1.PodRunning}}
	if ready {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	}
	return p
}

func (w *world) Node(kind, reason, message string) {
	eventtest.Note(kind, reason, message)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, reason)
}

// A run is one process.
type run struct {
	*Keeper
	cfg *config.Config
	end chan error // why the agent ends
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newer compares versions.
func newer(a, b string) (bool, error) {
	x, err := version.ParseSemantic(a)
	if err != nil {
		return false, err
	}
	y, err := version.ParseSemantic(b)
	return err == nil && y.LessThan(x), err
}

// start starts an agent in a role.
func (w *world) start(role guard.Role) *run {
	w.Helper()
	return w.startAs("0.1.0", role)
}

// startAs starts one of a version.
func (w *world) startAs(version string, role guard.Role) *run {
	w.Helper()
	s := Begin(role, w.args)
	cfg, _, err := s.Load()
	if err != nil {
		w.Fatal(err)
	}
	return w.open(version, s, cfg)
}

// open is the rest of a start, of what was loaded.
func (w *world) open(version string, s *Start, cfg *config.Config) *run {
	w.Helper()
	var err error
	r := &run{cfg: cfg, end: make(chan error, 1)}
	r.Keeper, err = Open(Config{Config: cfg, Start: s, Version: version, Newer: newer, Node: w.facts, Events: w, End: func(err error) { r.end <- err }, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) apply(r *run, text string, consent ...string) error {
	w.Helper()
	_, err := Local{r.Keeper}.Apply([]byte(text), "f.yaml", consent, false)
	return err
}

// TestTrial: an agent that is sent something ends for its trial, the one on trial runs by it and
// stores that it is good, and every later one runs by it.
func TestTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "configuration: {healthyFor: 10s, deadline: 1m}\n")
		first := w.start(guard.Role{})
		if _, err := os.Stat(filepath.Join(w.dir, trial.File)); err == nil || first.Conditions() != nil || first.Problems() != nil {
			t.Error("a node that was sent nothing keeps something")
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- first.Run(ctx) }()
		if err := w.apply(first, kubeletHead+"maxPods: 17\n"); err != nil {
			t.Fatal(err)
		}
		again := (*Again)(nil)
		if err := <-first.end; !errors.As(err, &again) || again.Role.Kind != guard.Guard || again.Role.Deadline != time.Minute {
			t.Fatalf("%v", err)
		}
		if err := w.apply(first, kubeletHead); !errors.Is(err, ErrBusy) {
			t.Errorf("another one came into the trial: %v", err)
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
		w.pods[0] = pod("a", true)
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
		if want := []string{ReasonTrying, ReasonAccepted}; !slices.Equal(w.events, want) {
			t.Errorf("events %v, want %v", w.events, want)
		}
		if err := w.apply(third, kubeletHead+"maxPods: 17\n"); err != nil || third.Show().Assigned != nil {
			t.Errorf("the same again: %v, %+v", err, third.Show())
		}
		if c, err := third.Revert(); err != nil || !c.IsLocal() || third.Show().Assigned.ID != "local" {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// tried brings a node to the moment in which a configuration is on trial.
func (w *world) tried(text string) {
	w.Helper()
	r := w.start(guard.Role{})
	if err := w.apply(r, text); err != nil {
		w.Fatal(err)
	}
	if !r.begin(w.Context()) {
		w.Fatal("it is not tried")
	}
}

// TestFailures: however a trial ends that does not end well, the one from before goes on.
func TestFailures(t *testing.T) {
	w := newWorld(t, "")
	w.tried(kubeletHead + "maxPods: 17\n")
	r := w.start(guard.Role{After: true, Why: "the port is taken"})
	if s := r.Show(); r.cfg.Kubelet.MaxPods != 110 || s.Active.ID != "local" || s.Failed == nil || s.Failed.Why != "the port is taken" || s.Assigned != nil {
		t.Errorf("%+v", s)
	}
	if c := r.Conditions(); c[0].Status != v1.ConditionFalse || !strings.Contains(c[0].Message, "the port is taken") || !slices.ContainsFunc(r.Problems(), func(p string) bool { return strings.Contains(p, "the port") }) {
		t.Errorf("%+v", c)
	}
	if a := r.Annotations()[keys.ConfigurationStatus]; !strings.Contains(a, `"error":"configuration`) || !strings.Contains(a, `"activeID":"local"`) {
		t.Error(a)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Collectors()...)
	if got, err := registry.Gather(); err != nil || len(got) != 5 {
		t.Errorf("%d metrics, %v", len(got), err)
	}
	w.tried(kubeletHead + "maxPods: 18\n")
	r = w.start(guard.Role{}) // by the service manager, after kill -9
	if s := r.Show(); s.Active.ID != "local" || s.Assigned == nil || s.Failed != nil || s.Attempts != 1 {
		t.Errorf("interrupted: %+v", s)
	}
	// One that does not even load fails its trial with that.
	if s := Begin(guard.Role{Kind: guard.Trial}, w.args); true {
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

// TestChecks: what is wrong is said by field, and nothing is tried or kept.
func TestChecks(t *testing.T) {
	w := newWorld(t, "configuration: {consent: [cgroupDriver]}\n")
	r := w.start(guard.Role{})
	for text, want := range map[string]string{
		kubeletHead + "maxPods: 1\n":                       "maxPods: Invalid value: 1: fewer than the 2 pods",
		kubeletHead + "podCIDR: 10.9.0.0/24\n":             "podCIDR: Forbidden",
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
	for file, want := range map[string]string{"/nonexistent": "no such file", text: "it holds no certificate", pipe: "no regular file", "/dev/zero": "no regular file", w.dir: "no regular file"} {
		if err := w.apply(r, kubeletHead+"authentication: {x509: {clientCAFile: "+file+"}}\n", "authentication.x509.clientCAFile"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s as authorities: %v, want %s", file, err, want)
		}
	}
	if err := w.apply(r, kubeletHead, "nonsense"); err == nil {
		t.Error("consent to nonsense is taken")
	}
	if s := r.Show(); s.Assigned != nil || s.Failed != nil || len(s.History) != 0 {
		t.Errorf("kept: %+v", s)
	}
	if _, err := (Local{r.Keeper}).Apply([]byte(kubeletHead+"cgroupDriver: systemd\n"), "f", nil, true); err != nil {
		t.Errorf("the node consented: %v", err)
	}
	if err := w.apply(r, kubeletHead+"podCIDR: 10.9.0.0/24\n", "podCIDR"); err != nil {
		t.Errorf("a person consented: %v", err)
	}
	if _, err := (Local{w.start(guard.Role{}).Keeper}).Revert(); err == nil {
		t.Error("there was nothing to go back to")
	}
}

// TestUnusable: a good configuration, or a record, that cannot be used any more is no reason
// not to start.
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
}

// TestUnread: a record that the system does not read now is neither set aside nor replaced: the
// next start has it again.
func TestUnread(t *testing.T) {
	w := newWorld(t, "")
	w.tried(kubeletHead + "maxPods: 17\n")
	if why := w.start(guard.Role{Kind: guard.Trial}).accept(); why != "" {
		t.Fatal(why)
	}
	s := Begin(guard.Role{}, w.args)
	cfg, _, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	s.record, s.broken = trial.Record{}, &fs.PathError{Op: "open", Path: "record", Err: syscall.EMFILE}
	r := w.open("0.1.0", s, cfg)
	if err := w.apply(r, kubeletHead+"maxPods: 18\n"); !errors.Is(err, syscall.EMFILE) || r.Show().Assigned != nil || r.Show().Problem == "" {
		t.Errorf("%v, %+v", err, r.Show())
	}
	if r := w.start(guard.Role{}); r.cfg.Kubelet.MaxPods != 17 || r.Show().Problem != "" {
		t.Errorf("%+v", r.Show())
	}
}

// TestPods: pods that end by themselves, or that somebody deleted, say nothing of the node.
func TestPods(t *testing.T) {
	ended, gone, evicted := pod("ended", false), pod("gone", true), pod("evicted", false)
	ended.Status.Phase, evicted.Status.Phase, evicted.Status.Reason = v1.PodFailed, v1.PodFailed, "Evicted"
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	var f trial.Facts
	podFacts(&f, []*v1.Pod{pod("a", true), pod("b", false), ended, gone, evicted})
	if len(f.Pods) != 2 || !f.Pods["a"] || f.Pods["b"] || len(f.Rejected) != 1 {
		t.Errorf("%+v", f)
	}
}
