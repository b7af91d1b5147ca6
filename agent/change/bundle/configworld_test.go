package bundle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/eventtest"
)

const (
	kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\n"
	edgeHead    = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"
	ownMaxPods  = 110
	illMaxPods  = 13 // with this value the node is not Ready
)

// withKubelet returns a change of a source directory that adds a KubeletConfiguration, and those that add pods.
func withKubelet(text string, pods ...string) func(string) {
	return func(dir string) {
		for _, name := range pods {
			second(name)(dir)
		}
		if err := os.WriteFile(filepath.Join(dir, "kubelet.yaml"), []byte(kubeletHead+text), 0o600); err != nil {
			panic(err)
		}
	}
}

func maxPods(n int) string { return fmt.Sprintf("maxPods: %d\n", n) }

// A machine is a world whose agent has a real Keeper of configurations. The tests of it run in synctest bubbles.
type machine struct {
	*world
	t      *testing.T
	edge   string // the text of the node's own EdgeConfiguration
	starts int
	busy   atomic.Bool // the node is not Ready
	keys   bool        // bundles are verified with the keys of the configuration, as in the agent

	writing sync.Mutex   // protects onWrite
	onWrite func(string) // is called after each durable write; may be nil
}

func newMachine(t *testing.T, edge string) *machine {
	return &machine{world: newWorld(t), t: t, edge: edge + "configuration: {healthyFor: 10s, deadline: 1m}\n"}
}

// A process is one process of the agent.
type process struct {
	*machine
	role   guard.Role
	node   *Node
	keeper *configure.Keeper
	cfg    *config.Config
	end    chan error
	stop   func()
}

func (m *machine) wrote(step string) {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.onWrite != nil {
		m.onWrite(step)
	}
}

// setOnWrite sets the function that is called after each durable write, one call at a time.
func (m *machine) setOnWrite(f func(step string)) {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.onWrite = f
}

// start starts the agent.
func (m *machine) start(role guard.Role) *process {
	m.Helper()
	m.starts++
	own := filepath.Join(m.TempDir(), "edge.yaml")
	m.must(os.WriteFile(own, []byte(edgeHead+m.edge), 0o600))
	p := &process{machine: m, role: role, end: make(chan error, 1)}
	s := configure.Begin(role, []string{"--hostname-override=a", "--state-dir=" + m.dir, "--run-dir=" + m.dir + "/run", "--root-dir=" + m.dir + "/root",
		"--fail-swap-on=false", "--edge-config=" + own})
	var err error
	p.cfg, _, err = s.Load()
	m.must(err)
	p.keeper, err = configure.Open(configure.Config{
		Config: p.cfg, Start: s, Version: "0.1.0", IsNewer: func(string, string) (bool, error) { return false, nil },
		Events: eventtest.Sink(func(eventtest.Event) {}), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		End: func(err error) {
			m.wrote("end")
			p.end <- err
		},
	})
	m.must(err)
	m.wrote("open")
	p.node = m.boot(m.wrote)
	p.node.c.CheckTrial = func() error {
		if s.OnTrial() {
			return errors.New("on trial")
		}
		return nil
	}
	p.node.c.CheckKeys = s.CheckKeys
	if m.keys {
		p.node.c.Policy.Keys, err = parseKeys(p.cfg.Edge.Bundle.Keys)
		m.must(err)
		p.node.c.Policy.Threshold = int(p.cfg.Edge.Bundle.Threshold)
	}
	p.node.configurations = p.keeper
	p.keeper.Connect(configure.Node{
		Link: func() link.State { return link.State{Phase: link.Standalone} }, CheckPodsKnown: func() error { return nil },
		Ready: func(context.Context) []string {
			if p.cfg.Kubelet.MaxPods == illMaxPods || m.busy.Load() {
				return []string{"ill"}
			}
			return nil
		},
		PressuresMeasured: func() bool { return true }, Pressures: func() []v1.NodeConditionType { return nil },
		CheckReachable: func(context.Context) error { return nil }, SourcesReported: func() bool { return true }, Pods: m.list,
		HeldPods: func() []types.UID { return nil }, BundleTrials: p.node, ReadyConfirmed: func(*v1.Pod) bool { return true },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	p.node.Start(ctx, func(f func() error) { group.Go(func() { _ = f() }) })
	group.Go(func() { _ = p.keeper.Run(ctx) })
	p.stop = func() { cancel(); group.Wait() }
	return p
}

// settle runs agents, as their guards would, until nothing happens any more. It returns the last agent.
func (p *process) settle() *process {
	p.Helper()
	for {
		select {
		case err := <-p.end:
			p = p.next(err)
		case <-time.After(3 * time.Minute):
			if p.role.Kind != guard.Trial {
				return p
			}
			p.stop() // the guard ends the agent at the deadline
			p = p.start(guard.Role{After: true, Why: "the deadline"})
		}
	}
}

// next starts the agent that follows one that has ended.
func (p *process) next(err error) *process {
	p.Helper()
	p.stop()
	var again *configure.Restart
	if !errors.As(err, &again) {
		p.t.Fatal(err)
	}
	if again.Role.Kind != guard.Guard {
		again.Role.After = true
		return p.start(again.Role)
	}
	child := p.start(guard.Role{Kind: guard.Trial})
	for range int(again.Role.Deadline / time.Second) {
		time.Sleep(time.Second) // in the bubble's time
		if r, err := trial.Load(p.dir); err != nil || r.Trial == nil {
			p.must(err)
			p.wrote("judged")
			child.stop()
			return p.start(guard.Role{After: true})
		}
	}
	child.stop()
	return p.start(guard.Role{After: true, Why: "the deadline"})
}

// state returns the configuration and the pods of an agent, such as "110 web".
func (p *process) state() string {
	return fmt.Sprint(p.cfg.Kubelet.MaxPods, " ", strings.Join(p.names(), " "))
}

// requireState checks the state of an agent on which nothing happens any more.
func (p *process) requireState(want, what string) {
	p.Helper()
	if got := p.state(); got != want {
		p.Errorf("%s: %s, want %s", what, got, want)
	}
	r, err := trial.Load(p.dir)
	if b := p.node.now(); err != nil || r.Assigned != nil || r.Trial != nil || b.Trial != nil || b.Abandoned != "" {
		p.Errorf("%s: something continues: %v, %+v, %+v", what, err, r, b)
	}
	p.check(p.node, what)
}

// apply applies a bundle and waits for the result.
func (p *process) apply(file string) *process {
	p.Helper()
	if _, err := apply(p.node, file, false); err != nil {
		p.Fatal(err)
	}
	return p.settle()
}

// A snapshot is the disk of a machine at the time of a power cut.
type snapshot struct {
	step     string
	dir      string
	meta     map[string]string
	imported map[string]bool
}

func (m *machine) snapshot(step string) snapshot {
	s := snapshot{step, m.TempDir(), maps.Clone(m.meta), maps.Clone(m.imported)}
	m.must(os.CopyFS(s.dir, os.DirFS(m.dir)))
	return s
}

// restore returns a machine with the disk of a snapshot.
func (m *machine) restore(s snapshot) *machine {
	w := *newWorld(m.t)
	w.dir, w.meta, w.imported, w.bad = s.dir, s.meta, s.imported, m.bad
	return &machine{world: &w, t: m.t, edge: m.edge, keys: m.keys}
}

// requireKeys checks that all keys of a map are among those that are wanted, and that all of these occur.
func requireKeys(t *testing.T, got map[string]int, want ...string) {
	t.Helper()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
		t.Errorf("%v, want %v", got, want)
	}
}
