package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/rollout"
	"github.com/islet-edge/islet/internal/signed"
)

// The rings of the simulation.
const rings = `rings:
- {name: lab, selector: site=lab, jitter: 1h, soak: 12h, minSucceeded: 8}
- {name: first, percent: 20, jitter: 4h, soak: 24h, minSucceeded: 80}
- {name: rest, jitter: 8h, maxFailed: 5}
`

const (
	fleetSize = 500
	archive   = "islet-0.3.0-linux-arm64.tar.gz"
)

// A fleet simulates nodes and an office. A node decides by the function of the agent, and the office runs the real commands. Time passes
// only in run.
type fleet struct {
	*testing.T
	dir     string
	index   string // the office's own file
	key     ed25519.PrivateKey
	now     time.Time
	nodes   []*node
	history [][]byte             // all indexes of the office
	opened  map[string]time.Time // rings, by the indexes of the office
	parsed  map[string]*rollout.Index
	serve   func(n *node) []byte // what the server sends; nil: the index of the office
	paused  bool
}

type node struct {
	rollout.Node
	key     ed25519.PrivateKey
	fails   bool
	version string
	refused bool
	seen    time.Time
	tried   time.Time
	ring    string // in which it tried the version
}

func keyOf(i int) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(binary.BigEndian.AppendUint64(make([]byte, ed25519.SeedSize-8), uint64(i)))
}

func newFleet(t *testing.T, fails func(i int) bool) *fleet {
	t.Helper()
	f := &fleet{T: t, dir: t.TempDir(), now: time.Date(2026, 12, 1, 3, 4, 5, 6, time.UTC), opened: map[string]time.Time{},
		parsed: map[string]*rollout.Index{}}
	f.index = f.path("islet.index")
	public, err := signed.NewKeyFile(f.path("office.key"))
	f.must(err)
	f.key, err = signed.ReadKeyFile(f.path("office.key"))
	f.must(errors.Join(err, os.WriteFile(f.path("rings.yaml"), []byte(rings), 0o600), os.Mkdir(f.path("reports"), 0o700)))
	f.addArchive(archive, "0.3.0", "arm64")
	var keys bytes.Buffer
	for i := range fleetSize {
		n := &node{Node: rollout.Node{Name: fmt.Sprintf("node-%03d", i), Arch: "arm64"}, key: keyOf(i), version: "0.2.0", fails: fails(i)}
		if i < 10 {
			n.Labels = map[string]string{"site": "lab"}
		}
		f.nodes = append(f.nodes, n)
		fmt.Fprintln(&keys, signed.PublicKey(n.key))
		f.report(n)
	}
	f.must(os.WriteFile(f.path("nodes.keys"), keys.Bytes(), 0o600))
	f.office(quiet, "index", f.index, f.path("rings.yaml"), f.path("office.key"), f.path(archive))
	if x := f.read(); x.Verify([]signed.Key{public}, 1, "") != nil {
		t.Error("the index is not signed")
	}
	return f
}

func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// addArchive writes an archive and its release.
func (f *fleet) addArchive(file, version, arch string) {
	f.Helper()
	r, err := release.Describe(version, arch, strings.NewReader(file))
	f.must(err)
	f.must(errors.Join(os.WriteFile(f.path(file), []byte(file), 0o600), os.WriteFile(f.path(file+".release"), r.Sign(f.key), 0o600)))
}

// How a command must end: without a warning, with one, or with or without one.
const (
	quiet = iota
	warned
	anyhow
)

// office runs a command that must not fail, and keeps the index.
func (f *fleet) office(how int, args ...string) string {
	f.Helper()
	var out bytes.Buffer
	err := run(args, &out, f.now)
	if got := err != nil; how == quiet && got || how == warned && !got || got && !errors.As(err, new(warning)) {
		f.Fatalf("sign %q: %v\n%s", args, err, &out)
	}
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	text, err := os.ReadFile(f.index)
	f.must(err)
	if len(f.history) == 0 || !bytes.Equal(f.history[len(f.history)-1], text) {
		f.history = append(f.history, text)
	}
	x := f.read()
	f.paused = x.Paused != ""
	for _, r := range x.Rings {
		if _, known := f.opened[r.Name]; !known && !r.Opened.IsZero() {
			f.opened[r.Name] = r.Opened
		}
	}
	return out.String()
}

// advance runs the command that cron runs.
func (f *fleet) advance() string {
	f.Helper()
	return f.office(anyhow, "rollout", f.index, "--nodes", f.path("nodes.keys"), "--key", f.path("office.key"), f.path("reports"))
}

func (f *fleet) read() *rollout.Index {
	f.Helper()
	text, err := os.ReadFile(f.index)
	f.must(err)
	x, err := rollout.Parse(text)
	f.must(err)
	return x
}

// report writes the report of a node, as the server of the office does.
func (f *fleet) report(n *node) {
	f.Helper()
	u := &api.UpdateState{Arch: n.Arch, Labels: n.Labels}
	if n.refused {
		u.Trials = []api.UpdateTrial{{ID: f.id(), Time: n.tried, Result: api.UpdateFailed, Why: "the node lost its link"}}
	}
	f.writeReport(n.Name, n.key, api.BundleState{Node: n.Name, Time: f.now, Versions: api.BundleVersions{Islet: n.version}, Update: u})
}

func (f *fleet) writeReport(file string, key ed25519.PrivateKey, s api.BundleState) {
	f.Helper()
	document, err := bundle.SignState(s, key)
	f.must(err)
	text, err := json.Marshal(document)
	f.must(errors.Join(err, os.WriteFile(f.path("reports/"+file+".json"), text, 0o600)))
}

// id returns the ID of the program's trials.
func (f *fleet) id() string {
	text, err := os.ReadFile(f.path(archive + ".release"))
	f.must(err)
	r, err := release.Parse(text)
	f.must(err)
	return release.ProgramID("0.3.0", fmt.Sprintf("%x", r.SHA512))
}

// look lets a node look at the index, as agent/change/update does.
func (f *fleet) look(n *node) {
	text := f.history[len(f.history)-1]
	if f.serve != nil {
		text = f.serve(n)
	}
	x, known := f.parsed[string(text)]
	if !known {
		var err error
		if x, err = rollout.Parse(text); err != nil || x.Verify([]signed.Key{signed.PublicKey(f.key)}, 1, "") != nil {
			x = nil
		}
		f.parsed[string(text)] = x
	}
	if x == nil {
		return
	}
	refused := func(string, string) bool { return n.refused }
	d := x.Decide(n.Node, rollout.Record{Version: n.version, Seen: n.seen, IsRefused: refused}, f.now)
	n.seen = x.Remember(n.seen, f.now)
	if d.State != rollout.Due {
		return
	}
	n.tried, n.ring = f.now, d.Ring
	if n.fails {
		n.refused = true
	} else {
		n.version = x.Version
	}
	f.report(n)
	if at, open := f.opened[n.ring]; !open || f.now.Before(at) {
		f.Errorf("%s took the version in ring %s at %s, which the office had not opened", n.Name, n.ring, f.now)
	}
}

// run lets time pass. All nodes look once an hour, and the office runs its command every half a day.
func (f *fleet) run(hours int) {
	f.Helper()
	for h := range hours {
		for _, n := range f.nodes {
			f.look(n)
		}
		if h%12 == 11 {
			f.advance()
		}
		f.now = f.now.Add(time.Hour)
	}
}

// tried returns the number of nodes that have tried the version, by ring, and the number of those on which it failed.
func (f *fleet) tried() (byRing map[string]int, failed int) {
	byRing = map[string]int{}
	for _, n := range f.nodes {
		if !n.tried.IsZero() {
			byRing[n.ring]++
		}
		if n.refused {
			failed++
		}
	}
	return byRing, failed
}

func nobody(int) bool { return false }

// oneInFifty selects 2 % of the nodes, none of which is in the lab.
func oneInFifty(i int) bool { return i%50 == 27 }

// TestFleetStops checks that a version that fails on 2 % of 500 nodes, and on none of those of the lab, reaches only the first ring after
// the lab.
func TestFleetStops(t *testing.T) {
	f := newFleet(t, oneInFifty)
	f.run(4 * 24)
	tried, failed := f.tried()
	if tried["lab"] != 10 || tried["rest"] != 0 || tried["first"] < 80 || tried["first"] > 120 || failed == 0 || failed > 5 {
		t.Errorf("tried by %v, failed on %d", tried, failed)
	}
	x := f.read()
	if x.Paused == "" || x.Rings[1].Failed != failed || !x.Rings[2].Opened.IsZero() {
		t.Errorf("%+v", x.Plan)
	}
	if out := f.office(warned, "rollout", f.index, f.path("reports")); strings.Count(out, "failed: node-") != failed {
		t.Errorf("%d nodes have failed:\n%s", failed, out)
	}
	f.must(errors.Join(os.RemoveAll(f.path("reports")), os.Mkdir(f.path("reports"), 0o700))) // the failures are in the index
	f.office(warned, "rollout", f.index, "--nodes", f.path("nodes.keys"), "--key", f.path("office.key"), f.path("reports"))
	if again := f.read(); again.Paused == "" || again.Rings[1].Failed != failed {
		t.Errorf("%+v", again.Plan)
	}
}

// TestFleetStopsAtOnce checks the same for a version that fails on 2 % of all nodes if the first ring is a part of all nodes.
func TestFleetStopsAtOnce(t *testing.T) {
	f := newFleet(t, oneInFifty)
	f.must(os.WriteFile(f.path("rings.yaml"),
		[]byte("rings:\n- {name: first, percent: 30, jitter: 4h, soak: 24h, minSucceeded: 120}\n- {name: rest}\n"), 0o600))
	f.must(os.Remove(f.index))
	f.opened = map[string]time.Time{}
	f.office(quiet, "index", f.index, f.path("rings.yaml"), f.path("office.key"), f.path(archive))
	f.run(3 * 24)
	if tried, failed := f.tried(); len(tried) != 1 || tried["first"] > 180 || failed == 0 {
		t.Errorf("tried by %v, failed on %d", tried, failed)
	}
}

// TestFleetUpdates checks that a good version reaches all nodes, a ring only after the soak of the one before it, and that the nodes of a
// ring are spread over its jitter.
func TestFleetUpdates(t *testing.T) {
	f := newFleet(t, nobody)
	f.run(5 * 24)
	tried, failed := f.tried()
	if tried["lab"] != 10 || tried["lab"]+tried["first"]+tried["rest"] != fleetSize || failed != 0 {
		t.Errorf("tried by %v, failed on %d", tried, failed)
	}
	if d := f.opened["first"].Sub(f.opened["lab"]); d < 13*time.Hour {
		t.Errorf("the second ring opened after %s", d)
	}
	if d := f.opened["rest"].Sub(f.opened["first"]); d < 28*time.Hour {
		t.Errorf("the third ring opened after %s", d)
	}
	spread := map[time.Time]int{}
	for _, n := range f.nodes {
		spread[n.tried]++
	}
	for at, n := range spread {
		if n > fleetSize/6 {
			t.Errorf("%d nodes took the version in the hour of %s", n, at)
		}
	}
	if f.paused {
		t.Error("it is paused")
	}
}

// TestFleetPauses checks that no node takes a version during a pause, and that the rollout continues after it. A pause outlives the time
// after which the index would expire.
func TestFleetPauses(t *testing.T) {
	f := newFleet(t, nobody)
	f.run(20)
	f.office(quiet, "rollout", f.index, "--pause", "wait for the holidays", "--key", f.path("office.key"))
	before, _ := f.tried()
	f.run(15 * 24)
	if after, _ := f.tried(); fmt.Sprint(after) != fmt.Sprint(before) || before["lab"] != 10 || before["rest"] != 0 {
		t.Errorf("tried by %v before the pause, by %v after it", before, after)
	}
	f.office(quiet, "rollout", f.index, "--resume", "--key", f.path("office.key"))
	f.run(5 * 24)
	if after, _ := f.tried(); after["lab"]+after["first"]+after["rest"] != fleetSize {
		t.Errorf("tried by %v", after)
	}
}

// TestFleetExpires checks that nodes take nothing from an index that the office does not sign any more.
func TestFleetExpires(t *testing.T) {
	f := newFleet(t, nobody)
	for range 14 * 24 {
		f.now = f.now.Add(time.Hour)
	}
	for range 24 {
		for _, n := range f.nodes {
			f.look(n)
		}
		f.now = f.now.Add(time.Hour)
	}
	if tried, _ := f.tried(); len(tried) != 0 {
		t.Errorf("tried by %v", tried)
	}
}

// TestFleetLyingServer checks that a server that sends each node any index that was ever signed, or that others have signed, opens no ring
// early (look checks this), and cannot undo a pause for a node that has seen it.
func TestFleetLyingServer(t *testing.T) {
	f := newFleet(t, nobody)
	random := rand.New(rand.NewPCG(1, 2))
	open := f.read().Plan
	for i := range open.Rings {
		open.Rings[i].Opened = f.now
	}
	stolen, err := rollout.New(open, f.now, time.Time{})
	f.must(err)
	stolen.Sign(keyOf(7))
	mixed := append(bytes.Clone(stolen.Bytes()[:bytes.Index(stolen.Bytes(), []byte("---\n"))]),
		f.history[0][bytes.Index(f.history[0], []byte("---\n")):]...) // the signature of another text
	plain, err := os.ReadFile(f.path(archive + ".release"))
	f.must(err)
	lies := [][]byte{stolen.Bytes(), mixed, plain, nil}
	sawPause := map[*node]bool{}
	f.serve = func(n *node) []byte {
		if i := random.IntN(10); i < len(lies) {
			return lies[i]
		}
		text := f.history[random.IntN(len(f.history))]
		if bytes.Contains(text, []byte(`"paused"`)) {
			sawPause[n] = true
		}
		return text
	}
	f.run(30)
	if x := f.read(); x.Rings[1].Opened.IsZero() || !x.Rings[2].Opened.IsZero() {
		t.Fatalf("%+v", x.Plan)
	}
	f.now = f.now.Add(time.Minute)
	f.office(quiet, "rollout", f.index, "--pause", "stop", "--key", f.path("office.key"))
	paused := f.now
	f.run(48)
	saw, took := 0, 0
	for _, n := range f.nodes {
		if sawPause[n] {
			saw++
		}
		if n.tried.After(paused) {
			took++
		}
	}
	if saw < fleetSize/2 {
		t.Errorf("%d nodes have seen the pause", saw)
	}
	if tried, _ := f.tried(); tried["rest"] != 0 || took > 80 { // those of the open ring to which the server gave no pause in time
		t.Errorf("tried by %v; %d took the version after the pause", tried, took)
	}
	for n := range sawPause {
		before := n.tried
		f.look(n)
		if n.tried != before {
			t.Errorf("%s took the version after it had seen the pause", n.Name)
		}
	}
}

// TestFleetLiars checks what reports can do: those of strangers nothing, those of a few nodes only a pause.
func TestFleetLiars(t *testing.T) {
	f := newFleet(t, nobody)
	run := func(hours int) { // the office alone
		for range hours {
			f.now = f.now.Add(time.Hour)
		}
	}
	runs := func(name string) api.BundleState {
		return api.BundleState{
			Node: name, Time: f.now, Versions: api.BundleVersions{Islet: "0.3.0"},
			Update: &api.UpdateState{Arch: "arm64", Labels: map[string]string{"site": "lab"}},
		}
	}
	args := []string{"rollout", f.index, "--nodes", f.path("nodes.keys"), "--key", f.path("office.key"), f.path("reports")}
	run(48)
	for i := range 20 {
		f.writeReport(fmt.Sprint("stranger-", i), keyOf(1000+i), runs(fmt.Sprint("stranger-", i)))
	}
	f.writeReport("stranger", keyOf(2000), api.BundleState{Node: "x", Time: f.now, Update: &api.UpdateState{Arch: "arm64", Left: "9.0.0"}})
	if out := f.office(warned, args...); strings.Count(out, "which is not in") != 21 || !f.read().Rings[1].Opened.IsZero() || f.paused {
		t.Errorf("strangers:\n%s", out)
	}
	for i := range 21 {
		_ = os.Remove(f.path(fmt.Sprintf("reports/stranger-%d.json", i)))
	}
	f.must(os.Remove(f.path("reports/stranger.json")))

	for i := range 7 { // one less than the ring needs; each with many names
		for j := range 5 {
			f.writeReport(fmt.Sprintf("liar-%d-%d", i, j), keyOf(100+i), runs(fmt.Sprintf("liar-%d-%d", i, j)))
		}
	}
	f.office(quiet, args...)
	if x := f.read(); !x.Rings[1].Opened.IsZero() || f.paused {
		t.Errorf("seven liars: %+v", x.Plan)
	}
	for i := range 20 { // they take the names of honest nodes of the lab, whose successes no longer count
		f.writeReport(fmt.Sprint("twin-", i), keyOf(200+i), runs(fmt.Sprintf("node-%03d", i%10)))
	}
	f.office(quiet, args...)
	if x := f.read(); !x.Rings[1].Opened.IsZero() || f.paused {
		t.Errorf("twins: %+v", x.Plan)
	}
	failure := runs("node-300")
	failure.Update.Left = "0.3.0"
	f.writeReport("node-300", keyOf(300), failure)
	f.office(warned, args...)
	if x := f.read(); x.Paused == "" || x.Rings[0].Failed != 1 {
		t.Errorf("a failure: %+v", x.Plan)
	}
}
