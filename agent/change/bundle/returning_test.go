package bundle

// All waits in this file are in synctest bubbles, whose clock advances at once.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
)

// TestReturning requests another change while the node returns to the configuration before that of a bundle. A second revert would forget
// that the first configuration is abandoned. A bundle with the abandoned configuration would get its pods without the configuration.
func TestReturning(t *testing.T) {
	build := newWorld(t)
	none, one := build.bundle(1, nil), build.bundle(2, withKubelet(maxPods(16)))
	two, three := build.bundle(3, withKubelet(maxPods(17), "more")), build.bundle(4, withKubelet(maxPods(17), "third"))
	revert := func(p *process) error {
		_, err := p.node.Revert(p.t.Context())
		return err
	}
	for name, request := range map[string]func(*process) error{
		"a revert": revert,
		"a bundle": func(p *process) error {
			_, err := apply(p.node, three, false)
			return err
		},
		"a followed bundle": func(p *process) error {
			_, err := p.node.ApplyFollowed(p.t.Context(), three, feed.Seen{})
			return err
		},
		"a bundle that is staged": func(p *process) error {
			r := p.node.now()
			return p.node.startTrial(p.t.Context(), &staged{Bundle: Bundle{"kiosk", 4, someDigest("4")}, set: &set{}, docs: &documents{}}, r, r.allowAll)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t, "")
			p := m.start(guard.Role{}).apply(none).apply(one)
			m.bad["more"] = true
			if _, err := apply(p.node, two, false); err != nil {
				t.Fatal(err)
			}
			p = p.next(<-p.end)
			synctest.Wait()
			if p.state() != "17 more web" {
				t.Fatalf("the pods are not on trial: %s", p.state())
			}
			m.must(revert(p))
			if err := request(p); !errors.Is(err, feed.ErrBusy) {
				t.Errorf("%s: %v", name, err)
			}
			p = p.settle()
			p.requireState("16 web", name)
			m.must(revert(p))
			p = p.settle()
			p.requireState("110 web", name+", then a revert")
			p.stop()
		})
	}
}

// allowAll is the rule that allows each bundle.
func (*Record) allowAll(*Record, Bundle) error { return nil }

// TestOperatorReturnsToBundle checks that an operator can return to the configuration of a bundle that is not on trial.
func TestOperatorReturnsToBundle(t *testing.T) {
	build := newWorld(t)
	one := build.bundle(1, withKubelet(maxPods(16)))
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "")
		p := m.start(guard.Role{}).apply(one)
		l := configure.Local{Keeper: p.keeper}
		_, err := l.Apply([]byte(kubeletHead+maxPods(18)), "f.yaml", api.ConfigurationOptions{})
		m.must(err)
		p = p.settle()
		p.requireState("18 web", "the configuration of an operator")
		_, err = configure.Local{Keeper: p.keeper}.Revert()
		m.must(err)
		p = p.settle()
		p.requireState("16 web", "the return of an operator")
		if c := p.keeper.Show(); c.Good.From != "bundle kiosk number 1" {
			t.Errorf("%+v", c.Good)
		}
		p.stop()
	})
}

// TestConfigurationWaitsForDisk checks that the trial of a bundle's configuration begins when a full disk has space again. No one else
// wakes the agent.
func TestConfigurationWaitsForDisk(t *testing.T) {
	build := newWorld(t)
	one, two := build.bundle(1, nil), build.bundle(2, withKubelet(maxPods(17), "more"))
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "")
		p := m.start(guard.Role{}).apply(one)
		block := filepath.Join(m.dir, "."+trial.File+".new", "x") // the record cannot be written
		m.setOnWrite(func(step string) {
			if step == "assigned" {
				m.must(os.MkdirAll(block, 0o700))
			}
		})
		if _, err := apply(p.node, two, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // in the bubble's time
		if s, err := p.node.Status(); err != nil || !s.Configuring {
			t.Fatalf("%+v, %v", s, err)
		}
		m.setOnWrite(nil)
		m.must(os.RemoveAll(filepath.Dir(block)))
		p = p.settle()
		p.requireState("17 more web", "the disk has space again")
		p.stop()
	})
}

// TestKeysAndFieldsOfBundles checks that a bundle without an EdgeConfiguration does not bring back a key that was removed, and that no
// bundle changes a field that must not change while pods run, not even on a node without pods.
func TestKeysAndFieldsOfBundles(t *testing.T) {
	build := newWorld(t)
	key := func(c string) string { return fmt.Sprintf("islet-ed25519 %s=", strings.Repeat(c, 43)) }
	withEdge := func(n int64, text string) string {
		return build.bundle(n, func(dir string) {
			build.must(os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(edgeHead+text), 0o600))
		})
	}
	removed := build.bundle(2, func(dir string) {
		build.must(os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(edgeHead+fmt.Sprintf("bundle: {keys: [%q]}\n", key("B"))), 0o600))
	})
	for name, c := range map[string]struct{ file, want string }{
		"no configuration":          {build.bundle(3, nil), "bundle.keys: without this setting in edge.yaml"},
		"a kubelet's configuration": {build.bundle(3, withKubelet(maxPods(17))), "bundle.keys: without this setting in edge.yaml"},
		"a key in a comment":        {withEdge(3, "shimPods: 3 # not "+key("A")+"\n"), "bundle.keys: without this setting in edge.yaml"},
		"a configuration with a key": {build.bundle(3, func(dir string) {
			build.must(os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(edgeHead+fmt.Sprintf("bundle: {keys: [%q]}\n", key("A"))), 0o600))
		}), ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t, "")
			m.edge = fmt.Sprintf("bundle: {keys: [%q, %q]}\nconfiguration: {healthyFor: 10s, deadline: 1m, consent: [edge.bundle]}\n", key("A"), key("B"))
			p := m.start(guard.Role{}).apply(build.bundle(1, nil)).apply(removed)
			_, err := apply(p.node, c.file, false)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			p.settle().stop()
		})
	}
	logs := build.bundle(1, withKubelet("podLogsDir: /elsewhere\n"))
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "")
		m.edge = "configuration: {healthyFor: 10s, deadline: 1m, consent: [podLogsDir]}\n"
		p := m.start(guard.Role{})
		const want = "podLogsDir: Forbidden: a bundle cannot change it"
		if _, err := apply(p.node, logs, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
		p.settle().stop()
	})
}

// TestHoldTrialsUnused checks that a trial in a record that cannot be used does not prevent the trials of configurations and versions.
func TestHoldTrialsUnused(t *testing.T) {
	w := newWorld(t)
	if _, err := apply(w.boot(nil), w.bundle(1, nil), false); err != nil {
		t.Fatal(err)
	}
	n := Open(Config{Dir: w.dir, Store: w}) // the runtime of another program
	if n.now().Trial == nil || !n.HoldTrials("x") {
		t.Errorf("%+v", n.now().Trial)
	}
}
