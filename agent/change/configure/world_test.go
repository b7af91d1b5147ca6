package configure

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
)

const (
	kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\n"
	edgeHead    = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"
)

// A world is a node whose agent is restarted repeatedly.
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
	held   []types.UID
	bundle atomic.Bool // a bundle is on trial
	isHeld atomic.Bool // no trial of a bundle may begin
}

func (w *world) HoldTrials(string) bool {
	if w.bundle.Load() {
		return false
	}
	w.isHeld.Store(true)
	return true
}

func (w *world) ReleaseTrials() { w.isHeld.Store(false) }

func newWorld(t *testing.T, edge string) *world {
	dir := t.TempDir()
	w := &world{T: t, dir: dir, link: link.State{Phase: link.Standalone}}
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(edgeHead+edge), 0o600); err != nil {
		t.Fatal(err)
	}
	w.args = []string{"--hostname-override=n", "--state-dir=" + dir, "--run-dir=" + dir + "/run", "--root-dir=" + dir + "/root", "--fail-swap-on=false", "--edge-config=" + dir + "/edge.yaml"}
	w.pods = []*v1.Pod{pod("a", true), pod("b", true)}
	w.facts = Node{
		Link: func() link.State { return w.link }, Ready: func(context.Context) []string { return nil }, CheckPodsKnown: func() error { return nil },
		PressuresMeasured: func() bool { return true }, Pressures: func() []v1.NodeConditionType { return w.press }, CheckReachable: func(context.Context) error { return errors.New("no port") },
		Pods: func() []*v1.Pod {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.pods)
		},
		SourcesReported: func() bool { return true },
		BundleTrials:    w,
		ReadyConfirmed:  func(*v1.Pod) bool { return true },
		HeldPods: func() []types.UID {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.held
		},
	}
	return w
}

func pod(name string, ready bool) *v1.Pod {
	p := podtest.New(name, podtest.Namespace(""), podtest.Phase(v1.PodRunning))
	if ready {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	}
	return p
}

func (w *world) record(e eventtest.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e.Reason)
}

// recorded returns the reasons in the events since the last call of forget.
func (w *world) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil
}

// A run is one process of the agent.
type run struct {
	*Keeper
	cfg *config.Config
	end chan error // why the agent ended
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// This helper compares versions.
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

// startAs starts an agent of a given version.
func (w *world) startAs(version string, role guard.Role) *run {
	w.Helper()
	s := Begin(role, w.args)
	cfg, _, err := s.Load()
	if err != nil {
		w.Fatal(err)
	}
	return w.open(version, s, cfg)
}

// load performs the first part of a start: it loads the configuration.
func (w *world) load(role guard.Role) *Start {
	w.Helper()
	s := Begin(role, w.args)
	if _, _, err := s.Load(); err != nil {
		w.Fatal(err)
	}
	return s
}

// open performs the second part of a start: it creates the Keeper with the loaded configuration.
func (w *world) open(version string, s *Start, cfg *config.Config) *run {
	w.Helper()
	var err error
	r := &run{cfg: cfg, end: make(chan error, 1)}
	r.Keeper, err = Open(Config{Config: cfg, Start: s, Version: version, IsNewer: newer, Node: w.facts, Events: eventtest.Sink(w.record), End: func(err error) { r.end <- err }, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) apply(r *run, text string, consent ...string) error {
	w.Helper()
	_, err := Local{r.Keeper}.Apply([]byte(text), "f.yaml", api.ConfigurationOptions{Consent: consent})
	return err
}
