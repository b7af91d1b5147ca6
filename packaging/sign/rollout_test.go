package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/rollout"
	"github.com/islet-edge/islet/internal/signed"
)

// TestIndex checks what a new index must have.
func TestIndex(t *testing.T) {
	f := newFleet(t, nobody)
	key, index, plan := f.path("office.key"), f.path("next.index"), f.path("plan.yaml")
	second := f.path("second.key")
	if _, err := signed.NewKeyFile(second); err != nil {
		t.Fatal(err)
	}
	f.addArchive("islet-0.4.0-linux-arm64.tar.gz", "0.4.0", "arm64")
	f.addArchive("islet-0.4.0-linux-amd64.tar.gz", "0.4.0", "amd64")
	f.addArchive("torn.tar.gz", "0.4.0", "riscv64")
	f.must(os.WriteFile(f.path("torn.tar.gz"), nil, 0o600))
	f.must(os.WriteFile(f.path("alone.tar.gz"), nil, 0o600))
	arm, amd := f.path("islet-0.4.0-linux-arm64.tar.gz"), f.path("islet-0.4.0-linux-amd64.tar.gz")
	for name, x := range map[string]struct {
		plan string
		args []string // the index, the keys and the archives
		bad  string
	}{
		"two architectures": {"", []string{index, key, arm, amd}, ""},
		"two keys":          {"", []string{index, key + ":" + second, arm}, ""},
		"the same version":  {"", []string{f.index, key, f.path(archive)}, "already the index of version 0.3.0"},
		"no key":            {"", []string{index, arm, arm}, "contains no private key"},
		"no archive":        {"", []string{index, key}, "usage"},
		"no release":        {"", []string{index, key, f.path("alone.tar.gz")}, "must be next to the archive"},
		"a torn archive":    {"", []string{index, key, f.path("torn.tar.gz")}, "has 0 bytes"},
		"two versions":      {"", []string{index, key, arm, f.path(archive)}, "has version 0.3.0"},
		"twice":             {"", []string{index, key, arm, arm}, "there are two for arm64"},
		"no rings":          {"rings: []", []string{index, key, arm}, "it has no rings"},
		"a wrong field":     {"rings: [{name: all, percentage: 5}]", []string{index, key, arm}, "percentage"},
		"a wrong selector":  {"rings: [{name: all, selector: a in}]", []string{index, key, arm}, "unable to parse"},
		"no successes":      {"rings: [{name: one}, {name: all}]", []string{index, key, arm}, "minSucceeded is missing"},
		"an open ring":      {"rings: [{name: a, opened: 2026-01-01T00:00:00Z}]", []string{index, key, arm}, "are written by"},
		"a short period":    {"valid: 1m\nrings: [{name: all}]", []string{index, key, arm}, "valid"},
		"another zone":      {"rings: [{name: all, notBefore: 2026-01-01T00:00:00+01:00}]", []string{index, key, arm}, ""},
	} {
		if x.plan == "" {
			x.plan = "rings: [{name: all}]"
		}
		f.must(os.WriteFile(plan, []byte(x.plan), 0o600))
		_ = os.Remove(index)
		err := run(append([]string{"index", x.args[0], plan}, x.args[1:]...), io.Discard, f.now)
		if (err == nil) != (x.bad == "") || err != nil && !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(index); (err == nil) != (x.bad == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.must(os.WriteFile(plan, []byte("rings: [{name: all}]"), 0o600))
	before := f.read().Signed
	f.office(0, "index", f.index, plan, key, arm) // the next version replaces the index
	if x := f.read(); x.Version != "0.4.0" || !x.Signed.After(before) || x.Rings[0].Opened.IsZero() {
		t.Errorf("%+v", x)
	}
}

// TestSigners checks that no command signs an index that its keys have not signed before.
func TestSigners(t *testing.T) {
	f := newFleet(t, nobody)
	if _, err := signed.NewKeyFile(f.path("second.key")); err != nil {
		t.Fatal(err)
	}
	good := f.history[0]
	forged, err := rollout.New(f.read().Plan, f.now.Add(time.Hour), time.Time{})
	f.must(err)
	for name, x := range map[string]struct {
		index []byte
		key   string
	}{"no signature": {forged.Bytes(), "office.key"}, "another key": {good, "second.key"}} {
		for _, args := range [][]string{{f.path("reports")}, {"--pause", "why"}, {"--resume"}} {
			f.must(os.WriteFile(f.index, x.index, 0o600))
			args := append([]string{"rollout", f.index, "--key", f.path(x.key)}, args...)
			err := run(args, io.Discard, f.now)
			if text, e := os.ReadFile(f.index); err == nil || e != nil || string(text) != string(x.index) {
				t.Errorf("%s: %q: %v, %v", name, args, err, e)
			}
		}
	}
	f.must(os.WriteFile(f.index, good, 0o600))
	key := f.path("office.key")
	for _, args := range [][]string{{"rollout"}, {"rollout", "--resume"}, {"rollout", f.index, "--resume"},
		{"rollout", f.index, "--pause", "x"}, {"rollout", f.index, "--key", key, "--pause", "x", "--resume"},
		{"rollout", f.path("none")}, {"rollout", f.index, "--x"},
		{"rollout", f.index, f.path("none")}, {"rollout", f.index, "--nodes", f.path("none")}} {
		if err := run(args, io.Discard, f.now); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// TestWithoutKey checks that the command without a key changes nothing, and says what it would change.
func TestWithoutKey(t *testing.T) {
	f := newFleet(t, nobody)
	for _, n := range f.nodes[:10] {
		n.version = "0.3.0"
		f.report(n)
	}
	f.now = f.now.Add(24 * time.Hour)
	out := f.office(0, "rollout", f.index, "--nodes", f.path("nodes.keys"), f.path("reports"))
	if !strings.Contains(out, "with --key: ring first: opened") || len(f.history) != 1 || !strings.Contains(out, "lab") {
		t.Error(out)
	}
	out = f.office(0, "rollout", f.index, "--key", f.path("office.key"), f.path("reports"))
	if !strings.Contains(out, "keys of the nodes") || !f.read().Rings[1].Opened.IsZero() {
		t.Errorf("a ring was opened by reports of unknown keys:\n%s", out)
	}
}
