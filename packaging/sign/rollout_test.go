package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/api"
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
	f.office(quiet, "index", f.index, plan, key, arm) // the next version replaces the index
	if x := f.read(); x.Version != "0.4.0" || !x.Signed.After(before) || x.Rings[0].Opened.IsZero() {
		t.Errorf("%+v", x)
	}

	next := f.read()
	forged, err := rollout.New(next.Plan, time.Date(8000, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{})
	f.must(err)
	forged.Sign(keyOf(7)) // whoever can write the file makes the office sign for the year 8000
	f.addArchive("later.tar.gz", "0.5.0", "arm64")
	for name, text := range map[string]string{"forged": string(forged.Bytes()), "damaged": "islet"} {
		f.must(os.WriteFile(f.index, []byte(text), 0o600))
		err := run([]string{"index", f.index, plan, key, f.path("later.tar.gz")}, io.Discard, f.now)
		if got, e := os.ReadFile(f.index); err == nil || e != nil || string(got) != text {
			t.Errorf("%s: %v, %v", name, err, e)
		}
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
			} else if strings.Contains(err.Error(), "name the former key too") != (name == "another key") {
				t.Errorf("%s: %q: %v", name, args, err)
			}
		}
	}
	f.must(os.WriteFile(f.index, good, 0o600))
	key := f.path("office.key")
	for _, args := range [][]string{{"rollout"}, {"rollout", "--resume"}, {"rollout", f.index, "--resume"},
		{"rollout", f.index, "--pause", "x"}, {"rollout", f.index, "--key", key, "--pause", "x", "--resume"},
		{"rollout", f.index, "--key", key, "--pause", ""}, {"rollout", f.index, "--key", key, "--pause", " \n"},
		{"rollout", f.index, "--key", key, "--pause", "", "--resume"},
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
	out := f.office(quiet, "rollout", f.index, "--nodes", f.path("nodes.keys"), f.path("reports"))
	if !strings.Contains(out, "with --key: ring first: opened") || len(f.history) != 1 || !strings.Contains(out, "lab") {
		t.Error(out)
	}
	out = f.office(quiet, "rollout", f.index, "--key", f.path("office.key"), f.path("reports"))
	if !strings.Contains(out, "keys of the nodes") || !f.read().Rings[1].Opened.IsZero() {
		t.Errorf("a ring was opened by reports of unknown keys:\n%s", out)
	}
}

// TestUnknownKeys checks that reports change nothing in the index if the keys of the nodes are not given. Otherwise forged failures would
// pause the rollout, and a later --resume would allow as many real ones.
func TestUnknownKeys(t *testing.T) {
	f := newFleet(t, nobody)
	for i := range 30 {
		f.writeReport(fmt.Sprint("forged-", i), keyOf(1000+i), api.BundleState{Node: fmt.Sprint("forged-", i), Time: f.now,
			Update: &api.UpdateState{Arch: "arm64", Left: "0.3.0", Labels: map[string]string{"site": "lab"}}})
	}
	before := f.read().Plan
	args := []string{"rollout", f.index, "--key", f.path("office.key"), f.path("reports")}
	out := f.office(quiet, args...)
	if len(f.history) != 1 || strings.Count(out, "failed: forged-") != 30 {
		t.Errorf("reports of unknown keys change the index:\n%s", out)
	}
	f.office(quiet, append(args, "--pause", "look")...)
	f.office(quiet, append(args, "--resume")...)
	if after := f.read().Plan; !reflect.DeepEqual(after, before) {
		t.Errorf("after a pause: %+v", after)
	}
}

// TestBadReports checks that a report that does not count, and a pause, are warnings: the index is written, and a script goes on and copies
// it. If the reports or the keys cannot be read at all, nothing is written.
func TestBadReports(t *testing.T) {
	f := newFleet(t, nobody)
	for i := range 2 * maxNotes {
		f.must(os.WriteFile(f.path(fmt.Sprintf("reports/junk-%d.json", i)), []byte("{\x1b[2J"), 0o600))
	}
	f.must(os.Mkdir(f.path("reports/junk.json"), 0o700))
	f.nodes[0].refused = true
	f.report(f.nodes[0])
	good := f.history[0]
	key, nodes := f.path("office.key"), f.path("nodes.keys")
	out := f.office(warned, "rollout", f.index, "--nodes", nodes, "--key", key, f.path("reports"))
	if x := f.read(); x.Paused == "" || x.Rings[0].Failed != 1 || !strings.Contains(out, "is paused: ring lab") ||
		strings.Count(out, "/junk-") != maxNotes-1 || strings.Contains(out, "\x1b") {
		t.Errorf("%+v\n%s", x.Plan, out)
	}
	f.office(quiet, "rollout", f.index, "--key", key, "--resume", f.path("reports/node-001.json"))
	f.must(os.WriteFile(f.index, good, 0o600))
	for _, args := range [][]string{{"--nodes", nodes, f.path("none")}, {"--nodes", f.path("none"), f.path("reports")},
		{"--nodes", key, f.path("reports")}} {
		err := run(append([]string{"rollout", f.index, "--key", key}, args...), io.Discard, f.now)
		if text, e := os.ReadFile(f.index); err == nil || errors.As(err, new(warning)) || e != nil || string(text) != string(good) {
			t.Errorf("%q: %v, %v", args, err, e)
		}
	}
}

// TestResumeAccepts checks that --resume also accepts and stores failures that are in its reports and not yet in the index. So the next run
// of cron does not pause again because of them. --pause stores such failures too.
func TestResumeAccepts(t *testing.T) {
	for _, pause := range []bool{false, true} {
		f := newFleet(t, nobody)
		nodes := []string{"--nodes", f.path("nodes.keys"), "--key", f.path("office.key"), f.path("reports")}
		cron := append([]string{"rollout", f.index}, nodes...)
		fail := func(i int) {
			f.nodes[i].refused = true
			f.report(f.nodes[i])
		}
		fail(0)
		f.office(warned, cron...)
		fail(1) // after the last run of cron
		if pause {
			f.office(quiet, append(cron, "--pause", "look")...)
			if x := f.read(); x.Paused != "look" || x.Rings[0].Failed != 2 {
				t.Errorf("%+v", x.Plan)
			}
		}
		out := f.office(quiet, append(cron, "--resume")...)
		if x := f.read(); x.Paused != "" || x.Rings[0].Failed != 2 || x.Rings[0].MaxFailed != 2 ||
			strings.Contains(out, "2 nodes failed") == pause {
			t.Errorf("%+v\n%s", x.Plan, out)
		}
		f.office(quiet, cron...) // cron does not pause again
		fail(2)
		f.office(warned, cron...)
		if x := f.read(); x.Paused == "" || x.Rings[0].Failed != 3 {
			t.Errorf("a later failure: %+v", x.Plan)
		}
	}
}

// TestConcurrentCommands checks that a command that changes the index waits for another one, and then begins with its result. So cron does
// not undo the pause of a person.
func TestConcurrentCommands(t *testing.T) {
	f := newFleet(t, nobody)
	for _, n := range f.nodes[:10] {
		n.version = "0.3.0"
		f.report(n)
	}
	f.now = f.now.Add(24 * time.Hour)
	x := f.read()
	p := x.Plan
	p.Paused = "stop"
	paused, err := rollout.New(p, f.now, x.Signed)
	f.must(err)
	paused.Sign(f.key)
	key := f.path("office.key")
	cron := []string{"rollout", f.index, "--nodes", f.path("nodes.keys"), f.path("reports")}
	for name, args := range map[string][]string{"cron": append([]string{"rollout", "--key", key}, cron[1:]...),
		"the same version": {"index", f.index, f.path("rings.yaml"), key, f.path(archive)}} {
		f.must(os.WriteFile(f.index, f.history[0], 0o600))
		unlock, err := lock(f.index)
		f.must(err)
		done := make(chan error, 1)
		go func() { done <- run(args, io.Discard, f.now) }()
		f.awaitWaiter(name, done)
		f.office(anyhow, cron...) // without a key it does not wait
		f.must(errors.Join(os.WriteFile(f.index, paused.Bytes(), 0o600), unlock()))
		<-done
		if x := f.read(); x.Paused != "stop" || !x.Rings[1].Opened.IsZero() {
			t.Errorf("%s: the pause is lost: %+v", name, x.Plan)
		}
	}
}

// awaitWaiter waits until a command waits for the lock of the index.
func (f *fleet) awaitWaiter(name string, done <-chan error) {
	f.Helper()
	info, err := os.Stat(f.index + ".lock")
	f.must(err)
	inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	for {
		locks, err := os.ReadFile("/proc/locks")
		f.must(err)
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) {
				return
			}
		}
		select {
		case err := <-done:
			f.Fatalf("%s: it did not wait: %v", name, err)
		default:
		}
	}
}
