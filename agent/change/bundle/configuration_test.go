package bundle

// All calls of time.Sleep and all waits in this file are in synctest bubbles, whose clock advances at once.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/bundle/medium"
	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/internal/api"
)

// TestConfiguration checks the life of bundles with a configuration, and cuts the power after each durable write. An agent that starts
// then has either the old pods and the old configuration, or the new ones. It ends in the state in which it would have ended otherwise, or
// in the old one if the bundle was not on trial yet.
func TestConfiguration(t *testing.T) {
	build := newWorld(t)
	one := build.bundle(1, nil)
	old := "110 web"
	for name, c := range map[string]struct {
		file  string
		state string // at the end
		next  string // of an agent that starts in between
		bad   bool   // the new pod does not become Ready
	}{
		"kept":                    {build.bundle(2, withKubelet(maxPods(17), "more")), "17 more web", "17 more web", false},
		"the configuration fails": {build.bundle(2, withKubelet(maxPods(illMaxPods), "more")), old, old, false},
		"the pods fail":           {build.bundle(2, withKubelet(maxPods(17), "more")), old, "17 more web", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, "")
				p := m.start(guard.Role{}).apply(one)
				p.requireState(old, "the first bundle")
				m.bad["more"] = c.bad
				var cuts []snapshot
				m.setOnWrite(func(step string) { cuts = append(cuts, m.snapshot(step)) })
				p = p.apply(c.file)
				m.setOnWrite(nil)
				p.requireState(c.state, "the second bundle")
				p.stop()
				seen := map[string]int{}
				for _, s := range cuts {
					p := m.restore(s).start(guard.Role{})
					synctest.Wait()
					first := p.state()
					seen[first]++
					p = p.settle()
					end := c.state
					if p.node.now().Last.Number == 1 { // it was not on trial
						end = old
					}
					if first != old && first != c.next {
						t.Errorf("after a power cut at %s: %s", s.step, first)
					}
					p.requireState(end, "after a power cut at "+s.step)
					p.stop()
				}
				want := []string{old}
				if c.next != old {
					want = append(want, c.next)
				}
				requireKeys(t, seen, want...)
			})
		})
	}
}

// TestConfigurations checks a sequence of bundles. The agent restarts only if the configuration differs. A bundle without a configuration
// after one with a configuration returns the node to its own files. A revert brings back the configuration before the bundle.
func TestConfigurations(t *testing.T) {
	build := newWorld(t)
	edge := func(dir string) {
		withKubelet(maxPods(17), "more")(dir)
		build.must(os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(edgeHead+"shimPods: 3\n"), 0o600))
	}
	var bundles []string
	for i, change := range []func(string){nil, withKubelet(maxPods(17)), withKubelet(maxPods(17), "more"), edge, nil, withKubelet(maxPods(18))} {
		bundles = append(bundles, build.bundle(int64(i+1), change))
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "")
		p := m.start(guard.Role{})
		step := func(do func(), what, want string, starts int) {
			t.Helper()
			before := m.starts
			do()
			p.requireState(want, what)
			if got := m.starts - before; got != starts {
				t.Errorf("%s: the agent was started %d times, want %d", what, got, starts)
			}
			s, err := p.node.Status()
			if c := s.Configuration; err != nil || c != nil && !c.InUse {
				t.Errorf("%s: %+v, %v", what, c, err)
			}
		}
		put := func(i int) func() { return func() { p = p.apply(bundles[i]) } }
		revert := func() {
			if _, err := p.node.Revert(t.Context()); err != nil {
				t.Error(err)
			}
			p = p.settle()
		}
		step(put(0), "pods alone", "110 web", 0)
		step(put(1), "a configuration", "17 web", 2)
		step(put(2), "the same configuration", "17 more web", 0)
		step(revert, "a revert to the same configuration", "17 web", 0)
		step(put(3), "both configurations", "17 more web", 2)
		if p.cfg.Edge.ShimPods != 3 {
			t.Error(p.cfg.Edge.ShimPods)
		}
		step(put(4), "no configuration", "110 web", 2)
		if s, err := p.node.Status(); err != nil || s.Configuration == nil || s.Configuration.ID != "local" || p.cfg.Edge.ShimPods == 3 {
			t.Errorf("%+v, %v", s.Configuration, err)
		}
		step(revert, "a revert from the node's own files", "17 more web", 1)
		step(put(5), "another configuration", "18 web", 2)
		step(revert, "a revert to the configuration before", "17 more web", 1)
		p.stop()
		p = p.start(guard.Role{})
		step(func() { p = p.settle() }, "a start", "17 more web", 0)
		p.stop()
	})
}

// TestConfigurationEnded checks the ends of a bundle's trial while its configuration waits or is on trial: by a revert, and by a
// configuration of an operator. The configuration of the bundle is not tried any more. A revert also ends the trial of the agent on trial.
func TestConfigurationEnded(t *testing.T) {
	build := newWorld(t)
	one, two := build.bundle(1, nil), build.bundle(2, withKubelet(maxPods(17), "more"))
	revert := func(p *process) {
		if _, err := p.node.Revert(p.t.Context()); err != nil {
			p.Error(err)
		}
	}
	for name, c := range map[string]struct {
		waiting, trying func(*process)
		state, why      string
	}{
		"a revert before the trial": {revert, nil, "110 web", "islet bundle revert"},
		"a revert during the trial": {nil, revert, "110 web", "islet bundle revert"},
		"an operator": {func(p *process) {
			_, err := configure.Local{Keeper: p.keeper}.Apply([]byte(kubeletHead+maxPods(18)), "f.yaml", api.ConfigurationOptions{})
			p.must(err)
		}, nil, "18 web", "another configuration was requested"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, "")
				p := m.start(guard.Role{}).apply(one)
				m.busy.Store(c.waiting != nil) // the trial of the configuration waits
				if _, err := apply(p.node, two, false); err != nil {
					t.Fatal(err)
				}
				if s, err := p.node.Status(); err != nil || !s.Configuring || s.Trial.Number != 2 || s.Configuration != nil {
					t.Errorf("%+v, %v", s, err)
				}
				if c.waiting != nil {
					synctest.Wait()
					c.waiting(p)
					m.busy.Store(false)
				} else {
					<-p.end
					p.stop()
					p = p.start(guard.Role{Kind: guard.Trial})
					synctest.Wait()
					if p.state() != "17 web" {
						t.Errorf("on trial: %s", p.state())
					}
					c.trying(p)
					if s, err := p.node.Status(); err != nil || !s.Returning {
						t.Errorf("%+v, %v", s, err)
					}
					time.Sleep(2 * time.Second) // less than the configuration must be healthy; the guard ends the agent
					p.stop()
					p = p.start(guard.Role{After: true, Why: "reverted"})
				}
				p = p.settle()
				p.requireState(c.state, name)
				if last := p.node.now().Last; !strings.Contains(last.Why, c.why) || last.Number != 2 {
					t.Errorf("%+v", last)
				}
				p.stop()
			})
		})
	}
}

// TestConfigurationRefused checks which configurations a node refuses before anything is written, and which reverts.
func TestConfigurationRefused(t *testing.T) {
	build := newWorld(t)
	withEdge := func(text string) func(string) {
		return func(dir string) {
			build.must(os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(edgeHead+text), 0o600))
		}
	}
	key := func(c string) string { return fmt.Sprintf("islet-ed25519 %s=", strings.Repeat(c, 43)) }
	for name, c := range map[string]struct {
		change func(string)
		want   string
	}{
		"an unknown field": {withKubelet("maxPodz: 3\n"), "bundle kiosk number 2 KubeletConfiguration:4: maxPodz"},
		"a wrong kind":     {func(dir string) { withKubelet("---\nkind: Pod\n")(dir) }, "KubeletConfiguration"},
		"no consent":       {withKubelet("podCIDR: 10.9.0.0/24\n"), "podCIDR: Forbidden: it belongs to the node"},
		"keys":             {withEdge(fmt.Sprintf("bundle: {keys: [%q]}\n", key("A"))), "edge.bundle: Forbidden"},
		"a wrong value":    {withKubelet("port: -1\n"), "port: Invalid value: -1"},
		"another runtime":  {withKubelet("containerRuntimeEndpoint: unix:///run/other.sock\n"), "containerRuntimeEndpoint: Forbidden: a bundle"},
	} {
		file := build.bundle(2, c.change)
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t, "")
			p := m.start(guard.Role{}).apply(build.bundle(1, nil))
			before := m.snapshot("")
			if _, err := apply(p.node, file, false); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			p = p.settle()
			p.requireState("110 web", name)
			if fmt.Sprint(before.meta) != fmt.Sprint(m.meta) || m.starts != 1 {
				t.Errorf("%s: %v, %d starts", name, m.meta, m.starts)
			}
			p.stop()
		})
	}
	consent := "configuration: {healthyFor: 10s, deadline: 1m, consent: [edge.bundle]}\n"
	own := fmt.Sprintf("bundle: {keys: [%q, %q]}\n", key("A"), key("B"))
	for name, c := range map[string]struct {
		next string
		sent string // by an operator, after the bundle
		want string
	}{
		"a removed key":         {fmt.Sprintf("bundle: {keys: [%q]}\n", key("B")), "", "kiosk number 2: bundle.keys: "},
		"a higher threshold":    {fmt.Sprintf("bundle: {keys: [%q, %q], threshold: 2}\n", key("A"), key("B")), "", "kiosk number 2: bundle.keys: "},
		"a new key":             {fmt.Sprintf("bundle: {keys: [%q, %q, %q]}\n", key("A"), key("B"), key("C")), "", ""},
		"another configuration": {"shimPods: 3\n", "shimPods: 4\n", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t, "")
			m.edge = own + consent
			p := m.start(guard.Role{}).apply(build.bundle(1, nil)).apply(build.bundle(2, withEdge(c.next)))
			p.requireState("110 web", name)
			if c.sent != "" {
				_, err := configure.Local{Keeper: p.keeper}.Apply([]byte(edgeHead+c.sent), "f.yaml", api.ConfigurationOptions{})
				m.must(err)
				p = p.settle()
				if s, err := p.node.Status(); err != nil || s.Configuration == nil || s.Configuration.InUse {
					t.Errorf("%s: %+v, %v", name, s.Configuration, err)
				}
			}
			for text, want := range map[string]string{"": c.want, "shimPods: 5\n": c.want, c.next: "",
				strings.Replace(own, "}", ", threshold: 1}", 1): ""} {
				change := withEdge(text)
				if text == "" {
					change = nil
				}
				b := build.bundle(3, change)
				want = strings.TrimPrefix(want, "kiosk number 2: ")
				if _, err := p.node.stageFrom(t.Context(), p.node.now(), request{from: b}, func(string, int64, int64) {}); (err == nil) !=
					(want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: a bundle with %q: %v, want %q", name, text, err, want)
				}
			}
			keys := len(p.cfg.Edge.Bundle.Keys)
			_, err := p.node.Revert(t.Context())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			p = p.settle()
			if n := p.node.now(); (n.Current.Number == 1) != (err == nil) || err != nil && len(p.cfg.Edge.Bundle.Keys) != keys {
				t.Errorf("%s: %+v, %d keys", name, n.Current, len(p.cfg.Edge.Bundle.Keys))
			}
			if c.sent != "" && p.cfg.Edge.ShimPods != 4 {
				t.Errorf("%s: the configuration of the operator is lost: %d", name, p.cfg.Edge.ShimPods)
			}
			p.stop()
		})
	}
}

// TestConfigurationReplaced lets an operator send a configuration at the moment at which that of a bundle begins its trial. Either the
// operator gets an error, or the bundle fails and the configuration of the operator is tried.
func TestConfigurationReplaced(t *testing.T) {
	build := newWorld(t)
	one, two := build.bundle(1, nil), build.bundle(2, withKubelet(maxPods(17), "more"))
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t, "")
			p := m.start(guard.Role{}).apply(one)
			sent := make(chan error, 1)
			first := p
			m.setOnWrite(func(step string) {
				if step != "record" { // the trial of the bundle begins
					return
				}
				m.onWrite = nil
				go func() {
					_, err := configure.Local{Keeper: first.keeper}.Apply([]byte(kubeletHead+maxPods(18)), "f.yaml", api.ConfigurationOptions{})
					sent <- err
				}()
			})
			p = p.apply(two)
			want := "18 web"
			if err := <-sent; err != nil {
				want = "17 more web"
			}
			p.requireState(want, "a configuration at the same time")
			p.stop()
		})
	}
}

// A fullStore is a database on a full disk.
type fullStore struct{ Store }

func (fullStore) SetMeta(context.Context, string, string) error { return syscall.ENOSPC }

// TestConfigurationUndone checks that nothing stays assigned if the trial of the bundle cannot begin. While another configuration waits for
// its trial, the error says that the bundle can be tried later.
func TestConfigurationUndone(t *testing.T) {
	build := newWorld(t)
	two := build.bundle(2, withKubelet(maxPods(17)))
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "")
		p := m.start(guard.Role{}).apply(build.bundle(1, nil))
		p.node.c.Store = fullStore{m}
		if _, err := apply(p.node, two, false); !errors.Is(err, syscall.ENOSPC) || p.keeper.Show().Assigned != nil {
			t.Errorf("%v, %+v", err, p.keeper.Show().Assigned)
		}
		p.node.c.Store = m
		m.busy.Store(true)
		_, err := configure.Local{Keeper: p.keeper}.Apply([]byte(kubeletHead+maxPods(18)), "f.yaml", api.ConfigurationOptions{})
		m.must(err)
		if _, err := apply(p.node, two, false); !errors.Is(err, medium.ErrBusy) || !errors.Is(err, feed.ErrBusy) {
			t.Error(err)
		}
		m.busy.Store(false)
		p = p.settle()
		p.requireState("18 web", "the operator's configuration")
		p.apply(two).stop()
	})
}
