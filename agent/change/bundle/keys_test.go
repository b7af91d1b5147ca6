package bundle

// All waits in this file are in synctest bubbles, whose clock advances at once.

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/signed"
)

// signer returns the private key of a signer.
func signer(name byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{name}, ed25519.SeedSize))
}

// trusts returns the field bundle of an EdgeConfiguration for a list of signers, such as "AB".
func trusts(signers string, threshold int) string {
	var list []string
	for _, c := range []byte(signers) {
		list = append(list, fmt.Sprintf("%q", signed.PublicKey(signer(c)).String()))
	}
	return fmt.Sprintf("bundle: {keys: [%s], threshold: %d}\n", strings.Join(list, ", "), threshold)
}

// signedBy builds a bundle with a second pod, and signs it with the keys of some signers.
func (w *world) signedBy(signers string, number int64, edge, pod string) string {
	w.Helper()
	file := w.bundle(number, func(dir string) {
		if pod != "" {
			second(pod)(dir)
		}
		if edge != "" {
			w.must(os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(edgeHead+edge), 0o600))
		}
	})
	b, a := w.read(file)
	s := format.NewSignature(b.Contents, b.ID, b.Signature.Time)
	for _, c := range []byte(signers) {
		s.Text.Sign(signer(c))
	}
	return w.write(a, s)
}

// requireRefused checks that a node refuses bundles for want of signatures.
func (p *process) requireRefused(what string, files ...string) {
	p.Helper()
	for i, file := range files {
		if _, err := apply(p.node, file, false); err == nil || !strings.Contains(err.Error(), "signed by") {
			p.Errorf("%s, bundle %d of those that the node must refuse: %v", what, i+1, err)
		}
	}
}

// reboot restarts the agent of a node on which nothing happens.
func (p *process) reboot() *process {
	p.Helper()
	p.stop()
	return p.start(guard.Role{}).settle()
}

// TestRotatedKeys checks a bundle that replaces the keys of the node. When the bundle is kept, the node refuses bundles that the removed
// keys have signed, and accepts those of the new keys, also after a restart and with a threshold. A revert does not bring back a removed
// key. If the trial of the bundle fails, the old keys count, and the new ones do not.
func TestRotatedKeys(t *testing.T) {
	const consent = "configuration: {healthyFor: 10s, deadline: 1m, consent: [edge.bundle]}\n"
	for name, c := range map[string]struct {
		own, next string   // the keys of the node's file and of the bundle
		threshold [2]int   // of the node's file and of the bundle
		old, new  string   // signers that are enough before and after the change of keys
		never     []string // signers that are not enough after the change
		isEarly   bool     // the signers in new are not enough before the change
	}{
		"another key":        {"A", "B", [2]int{1, 1}, "A", "B", []string{"C"}, true},
		"one of two":         {"AB", "BC", [2]int{1, 1}, "A", "C", nil, true},
		"a threshold":        {"AB", "BC", [2]int{2, 2}, "AB", "BC", []string{"A", "B", "AC", "BB"}, true},
		"a higher threshold": {"AB", "AB", [2]int{1, 2}, "A", "AB", []string{"C", "CD"}, false},
		"all of three":       {"ABC", "DEF", [2]int{3, 2}, "ABC", "EF", []string{"AB", "D", "AD"}, true},
	} {
		build := newWorld(t)
		edge := trusts(c.next, c.threshold[1])
		one, fails, after := build.signedBy(c.old, 1, "", ""), build.signedBy(c.old, 2, edge, "bad"), build.signedBy(c.old, 3, "", "")
		early, rotates := build.signedBy(c.new, 4, "", "more"), build.signedBy(c.old, 4, edge, "more")
		old := []string{build.signedBy(c.old, 5, edge, "five"), build.signedBy(c.old, 6, "", "six")}
		next := []string{build.signedBy(c.new, 5, edge, "five"), build.signedBy(c.new, 6, edge, "six")}
		without := build.signedBy(c.new, 6, "", "six")
		var never []string
		for _, signers := range c.never {
			never = append(never, build.signedBy(signers, 5, edge, "five"))
		}
		old = append(old, never...)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, "")
				m.edge, m.keys = trusts(c.own, c.threshold[0])+consent, true
				p := m.start(guard.Role{}).apply(one)
				m.bad["bad"] = true
				p = p.apply(fails)
				p.requireState("110 web", "a failed rotation")
				p.requireRefused("after a failed rotation", never...)
				if c.isEarly {
					p.requireRefused("after a failed rotation", early)
				}
				p = p.apply(after).apply(rotates)
				p.requireState("110 more web", "the rotation")

				p.requireRefused("after the rotation", old...)
				p = p.reboot()
				p.requireRefused("after a reboot", old...)
				if _, err := p.node.Revert(t.Context()); err == nil || !strings.Contains(err.Error(), "bundle.keys: ") {
					t.Errorf("a revert brings back a removed key: %v", err)
				}
				p = p.settle()
				p.requireState("110 more web", "a refused revert")
				p = p.apply(next[0])
				p.requireState("110 five web", "a bundle of the new keys")
				if _, err := p.node.Revert(t.Context()); err != nil { // the configuration is the same
					t.Error(err)
				}
				p = p.settle().reboot()
				p.requireState("110 more web", "a revert with the same keys")
				p.requireRefused("after the revert", old...)
				if _, err := apply(p.node, without, false); err == nil || !strings.Contains(err.Error(), "bundle.keys: ") {
					t.Errorf("a bundle without keys returns to the removed ones: %v", err)
				}
				p = p.apply(next[1])
				p.requireState("110 six web", "a later bundle of the new keys")
				p.stop()
			})
		})
	}
}

// TestRemovedKeysAfterFallback checks that removed keys do not count again while the node cannot use the configuration that has removed
// them, because the host does not meet its requirements, or because the record of configurations is damaged. If the node does not know
// which keys count, it accepts no bundle by itself.
func TestRemovedKeysAfterFallback(t *testing.T) {
	build := newWorld(t)
	one, rotates := build.signedBy("A", 1, "", ""), build.signedBy("A", 2, trusts("B", 1), "more")
	old, next := build.signedBy("A", 3, "", "three"), build.signedBy("B", 3, trusts("B", 1)+"shimPods: 3\n", "three")
	record := func(m *machine) string { return filepath.Join(m.dir, trial.File) }
	for name, c := range map[string]struct {
		role    guard.Role
		damage  func(m *machine) error
		unknown bool // which keys count
	}{
		"unfit":   {role: guard.Role{Passed: 1, UnfitReason: "swap", Fallbacks: 1}},
		"damaged": {damage: func(m *machine) error { return os.WriteFile(record(m), []byte("{"), 0o600) }, unknown: true},
		"a newer islet's": {unknown: true, damage: func(m *machine) error {
			return os.WriteFile(record(m), []byte(`{"format": 1000}`), 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, "")
				m.edge, m.keys = trusts("A", 1)+"configuration: {healthyFor: 10s, deadline: 1m, consent: [edge.bundle]}\n", true
				p := m.start(guard.Role{}).apply(one).apply(rotates)
				p.requireRefused("after the rotation", old)
				for range 2 { // a damaged record is set aside at the first start
					p.stop()
					if c.damage != nil {
						m.must(c.damage(m))
						c.damage = nil
					}
					p = p.start(c.role)
					for _, try := range []func() error{
						func() error {
							_, _, err := p.node.ApplyNewest(t.Context(), offers(old))
							return err
						},
						func() error {
							_, err := p.node.ApplyFollowed(t.Context(), old, feed.Seen{})
							return err
						},
					} {
						if err := try(); err == nil || p.node.now().Trial != nil {
							t.Errorf("start %d: the bundle of a removed key is accepted", m.starts)
						}
					}
					if err := p.keeper.CheckOffer(false); (err != nil) != c.unknown {
						t.Errorf("a version of islet: %v", err)
					}
				}
				if problems := strings.Join(p.keeper.Problems(), "\n"); strings.Contains(problems, trial.ErrUnknownKeys.Error()) != c.unknown {
					t.Errorf("the problems of the node: %s", problems)
				}
				if c.unknown {
					if err := p.keeper.CheckOffer(true); err != nil {
						t.Errorf("a person cannot update: %v", err)
					}
				} else {
					p.requireRefused("after a fall back", old)
					_, _, err := p.node.ApplyNewest(t.Context(), offers(next))
					m.must(err)
				}
				p.stop()
			})
		})
	}
}

// TestKeysKnownAgain checks that a node whose record of configurations was damaged uses bundles by itself again, as soon as a person has
// removed the damaged record or a configuration was accepted. This lasts when the node returns to its own files.
func TestKeysKnownAgain(t *testing.T) {
	build := newWorld(t)
	one, rotates := build.signedBy("A", 1, "", ""), build.signedBy("A", 2, trusts("B", 1), "more")
	old, next := build.signedBy("A", 3, "", "three"), build.signedBy("B", 3, trusts("B", 1), "three")
	for name, c := range map[string]struct {
		end  func(p *process) *process
		next string
	}{
		"removed": {func(p *process) *process {
			p.must(os.Remove(filepath.Join(p.dir, trial.BrokenFile)))
			return p
		}, old},
		"accepted": {func(p *process) *process { return p.apply(rotates) }, next},
		"its own files": {func(p *process) *process {
			p = p.apply(rotates)
			_, err := p.keeper.Revert()
			p.must(err)
			return p.settle()
		}, old},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, "")
				m.edge, m.keys = trusts("A", 1)+"configuration: {healthyFor: 10s, deadline: 1m, consent: [edge.bundle]}\n", true
				p := m.start(guard.Role{}).apply(one)
				p.stop()
				m.must(os.WriteFile(filepath.Join(m.dir, trial.File), []byte("{"), 0o600))
				p = m.start(guard.Role{})
				if _, _, err := p.node.ApplyNewest(t.Context(), offers(old)); !errors.Is(err, trial.ErrUnknownKeys) {
					t.Errorf("the keys are unknown: %v", err)
				}
				p = c.end(p)
				for range 2 {
					problems := strings.Join(p.keeper.Problems(), "\n")
					if err := p.keeper.CheckOffer(false); err != nil || strings.Contains(problems, trial.ErrUnknownKeys.Error()) {
						t.Errorf("the keys are known: %v, %s", err, problems)
					}
					p = p.reboot()
				}
				_, _, err := p.node.ApplyNewest(t.Context(), offers(c.next))
				m.must(err)
				p.stop()
			})
		})
	}
}
