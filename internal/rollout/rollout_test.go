package rollout

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/signed"
)

var start = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func hours(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Hour} }

// newPlan returns a plan with an open ring of the lab, a closed one of a tenth of the other nodes, and a closed one of the rest.
func newPlan() Plan {
	return Plan{Version: "0.3.0", Valid: hours(240), Archives: []Archive{
		{Arch: "arm64", File: "islet-0.3.0-linux-arm64.tar.gz", SHA512: strings.Repeat("a", 128)},
		{Arch: "amd64", File: "islet-0.3.0-linux-amd64.tar.gz", SHA512: strings.Repeat("b", 128)},
	}, Rings: []Ring{
		{Name: "lab", Selector: "site=lab", Opened: start, Jitter: hours(2), Soak: hours(24), MinSucceeded: 2},
		{Name: "first", Selector: "site!=museum", Percent: 10, MaxFailed: 1, NotBefore: start.Add(100 * time.Hour)},
		{Name: "rest", Selector: "site!=museum", MaxFailed: 3},
	}}
}

func newIndex(t testing.TB, p Plan, now time.Time) *Index {
	t.Helper()
	x, err := New(p, now, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestDecide checks the decision of a node for each fact.
func TestDecide(t *testing.T) {
	lab := Node{Name: "a", Labels: map[string]string{"site": "lab"}, Arch: "arm64"}
	old := Record{Version: "0.2.0"}
	due := start.Add(jitter("a", "0.3.0", 2*time.Hour))
	if due.Equal(start) || due.After(start.Add(2*time.Hour)) {
		t.Errorf("the jitter is %s", due.Sub(start))
	}
	refuse := func(version, sum string) bool { return version == "0.3.0" && sum == strings.Repeat("a", 128) }
	for _, x := range []struct {
		name   string
		change func(*Plan)
		node   Node
		record Record
		now    time.Time
		state  State
		ring   string
		until  time.Time
	}{
		{name: "its time has come", node: lab, record: old, now: due, state: Due, ring: "lab"},
		{name: "its time has not come", node: lab, record: old, now: due.Add(-1), state: Waiting, ring: "lab", until: due},
		{name: "another label", node: Node{Name: "a", Arch: "arm64"}, record: old, now: due, state: Waiting, ring: "rest"},
		{name: "no ring", node: Node{Name: "a", Labels: map[string]string{"site": "museum"}, Arch: "arm64"}, record: old, now: due,
			state: Outside},
		{name: "no archive", node: Node{Name: "a", Labels: lab.Labels, Arch: "riscv64"}, record: old, now: due, state: Outside,
			ring: "lab"},
		{name: "the same version", node: lab, record: Record{Version: "0.3.0"}, now: due, state: Installed, ring: "lab"},
		{name: "a newer version", node: lab, record: Record{Version: "0.4.0-rc.1"}, now: due, state: Installed, ring: "lab"},
		{name: "a preview of it", node: lab, record: Record{Version: "0.3.0-rc.1"}, now: due, state: Due, ring: "lab"},
		{name: "no version", node: lab, record: Record{Version: "unknown"}, now: due, state: Outside, ring: "lab"},
		{name: "failed", node: lab, record: Record{Version: "0.2.0", IsRefused: refuse}, now: due, state: Refused, ring: "lab"},
		{name: "another archive failed", node: Node{Name: "a", Labels: lab.Labels, Arch: "amd64"},
			record: Record{Version: "0.2.0", IsRefused: refuse}, now: due, state: Due, ring: "lab"},
		{name: "an older index", node: lab, record: Record{Version: "0.2.0", Seen: start.Add(time.Second)}, now: due, state: Waiting,
			ring: "lab"},
		{name: "the same index", node: lab, record: Record{Version: "0.2.0", Seen: start}, now: due, state: Due, ring: "lab"},
		{name: "a wrong clock", node: lab, record: old, now: start.Add(-2 * time.Hour), state: Waiting, ring: "lab", until: start},
		{name: "expired", node: lab, record: old, now: start.Add(240 * time.Hour), state: Waiting, ring: "lab"},
		{name: "before it expires", node: lab, record: old, now: start.Add(240*time.Hour - 1), state: Due, ring: "lab"},
		{name: "paused", change: func(p *Plan) { p.Paused = "two failed" }, node: lab, record: old, now: due, state: Paused, ring: "lab"},
		{name: "not before", change: func(p *Plan) { p.Rings[0].NotBefore = start.Add(50 * time.Hour) }, node: lab, record: old, now: due,
			state: Waiting, ring: "lab", until: due.Add(50 * time.Hour)},
		{name: "a closed ring", change: func(p *Plan) { p.Rings[0].Opened = time.Time{} }, node: lab, record: old, now: due, state: Waiting,
			ring: "lab"},
	} {
		p := newPlan()
		if x.change != nil {
			x.change(&p)
		}
		index := newIndex(t, p, start)
		d := index.Decide(x.node, x.record, x.now)
		if d.State != x.state || d.Ring != x.ring || !d.Until.Equal(x.until) || d.Reason == "" {
			t.Errorf("%s: %+v", x.name, d)
		}
		if d.State == Due && (d.Archive == nil || d.Archive.Arch != x.node.Arch) {
			t.Errorf("%s: archive %+v", x.name, d.Archive)
		}
	}
}

// TestShares checks that a percentage selects its part of the nodes, that a greater one selects these nodes too, and that another version
// selects other nodes.
func TestShares(t *testing.T) {
	const all = 10_000
	p := newPlan()
	p.Rings = []Ring{{Name: "five", Percent: 5, Opened: start}, {Name: "quarter", Percent: 25}, {Name: "rest"}}
	index := newIndex(t, p, start)
	p.Version = "0.4.0"
	next := newIndex(t, p, start)
	count, both := map[int]int{}, 0
	for i := range all {
		name := fmt.Sprintf("node-%d", i)
		at := index.ringOf(name, nil)
		count[at]++
		if at == 0 && next.ringOf(name, nil) == 0 {
			both++
		}
	}
	for at, want := range map[int]int{0: 500, 1: 2000, 2: 7500} {
		if got := count[at]; got < want*9/10 || got > want*11/10 {
			t.Errorf("ring %d has %d nodes of %d, not about %d", at, got, all, want)
		}
	}
	if both > 60 { // 25 are expected
		t.Errorf("%d nodes are in the first ring of both versions", both)
	}
}

// TestParse checks that a plan that is not valid is neither written nor read.
func TestParse(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"no version":         func(p *Plan) { p.Version = "latest" },
		"no archive":         func(p *Plan) { p.Archives = nil },
		"two archives":       func(p *Plan) { p.Archives[1].Arch = "arm64" },
		"a directory":        func(p *Plan) { p.Archives[0].File = "../islet" },
		"a dot":              func(p *Plan) { p.Archives[0].File = ".." },
		"a URL":              func(p *Plan) { p.Archives[0].File = "https://example.com" },
		"a query":            func(p *Plan) { p.Archives[0].File = "islet?x" },
		"a short sum":        func(p *Plan) { p.Archives[0].SHA512 = "aa" },
		"an architecture":    func(p *Plan) { p.Archives[0].Arch = "ARM 64" },
		"no ring":            func(p *Plan) { p.Rings = nil },
		"many rings":         func(p *Plan) { p.Rings = make([]Ring, maxRings+1) },
		"no name":            func(p *Plan) { p.Rings[1].Name = "" },
		"two names":          func(p *Plan) { p.Rings[1].Name = "lab" },
		"a percentage":       func(p *Plan) { p.Rings[1].Percent = 101 },
		"less than none":     func(p *Plan) { p.Rings[1].Percent = -1 },
		"a selector":         func(p *Plan) { p.Rings[1].Selector = "site in" },
		"a long selector":    func(p *Plan) { p.Rings[1].Selector = "site=" + strings.Repeat("a,", maxSelector) },
		"a jitter":           func(p *Plan) { p.Rings[1].Jitter = hours(-1) },
		"a soak":             func(p *Plan) { p.Rings[1].Soak = hours(24 * 400) },
		"failures":           func(p *Plan) { p.Rings[1].MaxFailed = -1 },
		"another zone":       func(p *Plan) { p.Rings[1].NotBefore = start.In(time.FixedZone("", 3600)) },
		"out of order":       func(p *Plan) { p.Rings[2].Opened = start },
		"a short period":     func(p *Plan) { p.Valid.Duration = time.Minute },
		"part of a second":   func(p *Plan) { p.Valid.Duration = time.Hour + time.Millisecond },
		"control characters": func(p *Plan) { p.Paused = "\x1b[2J" },
		"a long reason":      func(p *Plan) { p.Paused = strings.Repeat("a", maxPaused+1) },
	} {
		p := newPlan()
		change(&p)
		if _, err := New(p, start, time.Time{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	good := string(newIndex(t, newPlan(), start).Bytes())
	for name, text := range map[string]string{
		"an unknown field": strings.Replace(good, `"version"`, `"only":"x","version"`, 1),
		"another spelling": strings.Replace(good, `{"version"`, `{ "version"`, 1),
		"a field twice":    strings.Replace(good, `{"version"`, `{"version":"0.2.0","version"`, 1),
		"another case":     strings.Replace(good, `{"version"`, `{"Version"`, 1),
		"another zone":     strings.Replace(good, "signed: 2026-12-01T00:00:00Z", "signed: 2026-12-01T01:00:00+01:00", 1),
		"a release":        strings.Replace(good, "islet rollout 1", "islet release 1", 1),
		"a later format":   strings.Replace(good, "islet rollout 1", "islet rollout 2", 1),
	} {
		if _, err := Parse([]byte(text)); err == nil || text == good {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := release.Parse([]byte(good)); err == nil {
		t.Error("an index is a release")
	}
}

// TestBombs checks that a small index with many rings, archives or conditions is rejected without much memory.
func TestBombs(t *testing.T) {
	head := "islet rollout 1\nsigned: 2026-12-01T00:00:00Z\nexpires: 2026-12-11T00:00:00Z\nplan: "
	for name, plan := range map[string]string{
		"rings":    `{"version":"1.0.0","rings":[` + strings.Repeat("{},", 5000) + "{}]}",
		"archives": `{"archives":[` + strings.Repeat("{},", 5000) + "{}]}",
		"depth":    strings.Repeat("[", 16_000),
		"selector": `{"rings":[{"selector":"` + strings.Repeat("(", 16_000) + `"}]}`,
	} {
		text := []byte(head + plan + "\n---\n")
		if len(text) > MaxText {
			text = append(text[:MaxText-5], "\n---\n"...)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Parse(text); err == nil {
			t.Errorf("%s: no error", name)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s: %d bytes are allocated", name, n)
		}
	}
}

// TestTimeGrows checks that the signed time of an index is later than that of the index that it replaces, even if the clock was set back.
func TestTimeGrows(t *testing.T) {
	x, err := New(newPlan(), start, start.Add(time.Hour))
	if err != nil || !x.Signed.Equal(start.Add(time.Hour+time.Second)) {
		t.Fatalf("%v, %v", x, err)
	}
	again, err := Parse(x.Bytes())
	if err != nil || !again.Signed.Equal(x.Signed) || !again.Expires.Equal(x.Signed.Add(240*time.Hour)) {
		t.Errorf("%v, %v", again, err)
	}
}

// report returns the report of a node in the lab.
func report(key, node, version string, u *api.UpdateState) Report {
	if u != nil && u.Arch == "" {
		u.Arch, u.Labels = "arm64", map[string]string{"site": "lab"}
	}
	return Report{key, &api.BundleState{Node: node, Time: start, Versions: api.BundleVersions{Islet: version}, Update: u}}
}

// TestCount checks which reports count as a success or a failure.
func TestCount(t *testing.T) {
	id, other := release.ProgramID("0.3.0", strings.Repeat("a", 128)), release.ProgramID("0.3.0", strings.Repeat("b", 128))
	trial := func(id, result string) []api.UpdateTrial {
		return []api.UpdateTrial{{ID: id, Result: result, Why: "x"}}
	}
	later := func(r Report) Report {
		r.State.Time = start.Add(time.Hour)
		return r
	}
	for name, x := range map[string]struct {
		reports           []Report
		succeeded, failed int
	}{
		"it runs":              {[]Report{report("k", "a", "0.3.0", &api.UpdateState{})}, 1, 0},
		"a newer one runs":     {[]Report{report("k", "a", "0.3.1", &api.UpdateState{})}, 1, 0},
		"an older one runs":    {[]Report{report("k", "a", "0.2.0", &api.UpdateState{})}, 0, 0},
		"no version":           {[]Report{report("k", "a", "", &api.UpdateState{})}, 0, 0},
		"follows no index":     {[]Report{report("k", "a", "0.3.0", nil)}, 0, 0},
		"on trial":             {[]Report{report("k", "a", "0.3.0", &api.UpdateState{OnTrial: true})}, 0, 0},
		"failed":               {[]Report{report("k", "a", "0.2.0", &api.UpdateState{Trials: trial(id, api.UpdateFailed)})}, 0, 1},
		"failed, then runs":    {[]Report{report("k", "a", "0.3.0", &api.UpdateState{Trials: trial(id, api.UpdateFailed)})}, 0, 1},
		"does not run there":   {[]Report{report("k", "a", "0.2.0", &api.UpdateState{Trials: trial(id, api.UpdateUnfit)})}, 0, 1},
		"failed long ago":      {[]Report{report("k", "a", "0.2.0", &api.UpdateState{Refused: []string{id}})}, 0, 1},
		"a person has left it": {[]Report{report("k", "a", "0.2.0", &api.UpdateState{Left: "0.3.0"})}, 0, 1},
		"has left an older":    {[]Report{report("k", "a", "0.2.0", &api.UpdateState{Left: "0.2.9"})}, 0, 0},
		"interrupted":          {[]Report{report("k", "a", "0.2.0", &api.UpdateState{Trials: trial(id, api.UpdateInterrupted)})}, 0, 0},
		"another program":      {[]Report{report("k", "a", "0.2.0", &api.UpdateState{Trials: trial(other, api.UpdateFailed)})}, 0, 0},
		"one key, two names": {[]Report{report("k", "a", "0.3.0", &api.UpdateState{}),
			later(report("k", "b", "0.3.0", &api.UpdateState{}))}, 1, 0},
		"one name, two keys": {[]Report{report("k", "a", "0.3.0", &api.UpdateState{}),
			report("l", "a", "0.3.0", &api.UpdateState{})}, 0, 0},
		"a later report hides nothing": {[]Report{later(report("k", "a", "0.3.0", &api.UpdateState{})),
			report("k", "a", "0.2.0", &api.UpdateState{Trials: trial(id, api.UpdateFailed)})}, 0, 1},
		"the newest counts": {[]Report{later(report("k", "a", "0.3.0", &api.UpdateState{})),
			report("k", "a", "0.2.0", &api.UpdateState{})}, 1, 0},
		"several nodes": {[]Report{report("k", "a", "0.3.0", &api.UpdateState{}), report("l", "b", "0.3.0", &api.UpdateState{}),
			report("m", "c", "0.2.0", &api.UpdateState{Left: "0.4.0"})}, 2, 1},
	} {
		c := newIndex(t, newPlan(), start).Count(x.reports)
		if got := c.Rings[0]; got.Succeeded != x.succeeded || got.Failed != x.failed {
			t.Errorf("%s: %+v", name, c)
		}
	}
	museum := &api.UpdateState{Arch: "amd64", Labels: map[string]string{"site": "museum"}}
	c := newIndex(t, newPlan(), start).Count([]Report{report("k", "a", "0.3.0", museum),
		report("l", "b", "0.3.0", nil), report("m", "c", "0.3.0", &api.UpdateState{}), report("n", "c", "0.3.0", &api.UpdateState{})})
	if c.Rings[3].Succeeded != 1 || len(c.Notes) != 2 {
		t.Errorf("%+v", c)
	}
	untested := &api.UpdateState{Trials: trial(id, api.UpdateUntested)}
	for _, want := range []int{1, 0} { // a note until there is a result
		c := newIndex(t, newPlan(), start).Count([]Report{report("k", "a", "0.2.0", untested)})
		if len(c.Notes) != want || c.Rings[0] != (Tally{Nodes: 1}) {
			t.Errorf("%+v", c)
		}
		untested.Trials = append(untested.Trials, trial(id, api.UpdateInterrupted)...)
	}
}

// tally returns the count of the first two rings.
func tally(succeeded, failed, failedNext int) Count {
	return Count{Rings: []Tally{{Succeeded: succeeded, Failed: failed}, {Failed: failedNext}, {}, {}}}
}

// TestAdvance checks when a ring opens, and when the rollout pauses.
func TestAdvance(t *testing.T) {
	soaked := start.Add(26 * time.Hour)
	enough := tally(2, 0, 0)
	for name, x := range map[string]struct {
		change func(*Plan)
		count  Count
		known  bool
		now    time.Time
		opened int // number of open rings
		paused bool
		failed int // of the first ring
	}{
		"opens":                    {count: enough, known: true, now: soaked, opened: 2},
		"too early":                {count: enough, known: true, now: soaked.Add(-1), opened: 1},
		"unknown keys":             {count: enough, now: soaked, opened: 1},
		"unknown keys, all failed": {count: tally(9, 300, 300), now: soaked, opened: 1},
		"too few":                  {count: tally(1, 0, 0), known: true, now: soaked, opened: 1},
		"one too many":             {count: tally(9, 1, 0), known: true, now: soaked, opened: 1, paused: true, failed: 1},
		"as many as may": {change: func(p *Plan) { p.Rings[0].MaxFailed = 1 }, count: tally(9, 1, 0), known: true, now: soaked,
			opened: 2, failed: 1},
		"in a closed ring": {count: tally(9, 0, 2), known: true, now: soaked, opened: 1, paused: true},
		"outside":          {count: Count{Rings: []Tally{{Succeeded: 9}, {}, {}, {Failed: 9}}}, known: true, now: soaked, opened: 2},
		"paused by a person": {change: func(p *Plan) { p.Paused = "holidays" }, count: enough, known: true, now: soaked, opened: 1,
			paused: true},
		"reports are gone": {change: func(p *Plan) { p.Rings[0].Failed, p.Rings[0].MaxFailed = 1, 1 }, count: enough, known: true,
			now: soaked, opened: 2, failed: 1},
		"reports of failures are gone": {change: func(p *Plan) { p.Rings[0].Failed = 1 }, count: enough, known: true, now: soaked,
			opened: 1, paused: true, failed: 1},
		"the first ring": {change: func(p *Plan) { p.Rings[0].Opened = time.Time{} }, count: tally(0, 0, 0), known: true, now: start, opened: 1},
		"not before": {change: func(p *Plan) { p.Rings[0].NotBefore = start.Add(time.Hour) }, count: enough, known: true, now: soaked,
			opened: 1},
		"all are open": {change: func(p *Plan) { p.Rings[1].Opened, p.Rings[2].Opened = start, start }, count: enough, known: true,
			now: soaked, opened: 3},
	} {
		p := newPlan()
		if x.change != nil {
			x.change(&p)
		}
		index := newIndex(t, p, start)
		before := string(index.Bytes())
		got, changes, _ := index.Advance(x.count, x.known, x.now)
		opened := 0
		for _, r := range got.Rings {
			if !r.Opened.IsZero() {
				opened++
			}
		}
		if opened != x.opened || (got.Paused != "") != x.paused || got.Rings[0].Failed != x.failed {
			t.Errorf("%s: %+v", name, got)
		}
		next, err := New(got, x.now, index.Signed)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if same := string(newIndex(t, got, start).Bytes()) == before; same != (len(changes) == 0) {
			t.Errorf("%s: changes %q", name, changes)
		}
		if x.paused {
			r, _ := next.Resume(tally(0, 0, 0), true)
			resumed := newIndex(t, r, x.now)
			if again, _, _ := resumed.Advance(x.count, true, x.now); again.Paused != "" {
				t.Errorf("%s: paused again: %s", name, again.Paused)
			}
		}
	}
}

// TestResume checks that Resume accepts the failures in the index and in reports with known keys, but not those in reports with unknown
// keys, and that it opens no ring.
func TestResume(t *testing.T) {
	for name, x := range map[string]struct {
		count     Count
		known     bool
		failed    int // in the first ring
		maxFailed int
		changes   int
	}{
		"of the index":    {count: tally(9, 0, 0), known: true, failed: 2, maxFailed: 2, changes: 1},
		"of the reports":  {count: tally(9, 3, 0), known: true, failed: 3, maxFailed: 3, changes: 2},
		"of unknown keys": {count: tally(9, 3, 0), failed: 2, maxFailed: 2, changes: 1},
		"of too many":     {count: tally(9, maxNodes+1, 0), known: true, failed: maxNodes, maxFailed: maxNodes, changes: 2},
	} {
		p := newPlan()
		p.Paused, p.Rings[0].Failed = "two failed", 2
		before := len(p.Rings)
		got, changes := newIndex(t, p, start).Resume(x.count, x.known)
		if r := got.Rings[0]; got.Paused != "" || r.Failed != x.failed || r.MaxFailed != x.maxFailed || len(changes) != x.changes ||
			len(got.Rings) != before || !got.Rings[1].Opened.IsZero() {
			t.Errorf("%s: %+v, %q", name, got, changes)
		}
		again, _, _ := newIndex(t, got, start).Advance(x.count, x.known, start)
		if again.Paused != "" {
			t.Errorf("%s: paused again: %s", name, again.Paused)
		}
	}
}

// FuzzParse checks that an index that is accepted is the text of its fields, that nobody without the key can write one, and that
// a decision about it never names another file or a ring that is closed.
func FuzzParse(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	x := newIndex(f, newPlan(), start)
	x.Sign(key)
	good := x.Bytes()
	f.Add(good)
	p := newPlan()
	p.Paused, p.Rings[1].Opened, p.Rings[0].Failed = "two failed", start, 2
	f.Add(newIndex(f, p, start).Bytes())
	f.Add([]byte("islet rollout 1\nsigned: 2026-12-01T00:00:00Z\nexpires: 2026-12-01T01:00:00Z\nplan: {}\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Parse(data)
		if err != nil {
			return
		}
		if again, err := Parse(got.Bytes()); err != nil || !bytes.Equal(again.Bytes(), got.Bytes()) {
			t.Errorf("%q is not read again: %v", got.Bytes(), err)
		}
		head, _, _ := bytes.Cut(good, []byte("---\n"))
		if got.Verify([]signed.Key{signed.PublicKey(key)}, 1, "my keys") == nil && !bytes.HasPrefix(data, head) {
			t.Errorf("%q has a signature of the key", data)
		}
		for _, now := range []time.Time{{}, start, start.Add(10 * time.Hour), start.Add(1 << 62)} {
			d := got.Decide(Node{Name: "a", Labels: map[string]string{"site": "lab"}, Arch: "arm64"}, Record{Version: "0.0.1"}, now)
			if d.State != Due {
				continue
			}
			i := got.ringOf("a", map[string]string{"site": "lab"})
			if r := got.Rings[i]; got.Paused != "" || r.Opened.IsZero() || now.Before(r.Opened) ||
				strings.ContainsAny(d.Archive.File, "/\\?#%") {
				t.Errorf("%q: %+v", data, d)
			}
		}
		plan, _, _ := got.Advance(got.Count(nil), true, start)
		if text, err := json.Marshal(plan); err == nil && len(text) < 8<<10 {
			if _, err := New(plan, start, got.Signed); err != nil && got.Signed.Year() < 8000 {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}
