package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
)

// start is the time 0 of all recordings, which is also the time at which a synctest bubble begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// step is the time between two scrapes, and between two evaluations of the rules.
const step = 2 * time.Minute

// away is the text of a page while the node cannot be reached: the scrape fails.
const away = "away"

// A page is the metrics text that a node serves from the time at until the next page begins.
type page struct {
	at   time.Duration
	text string
}

// parsePages splits a recording: see internal/seriestest.
func parsePages(t *testing.T, text string) (out []page) {
	t.Helper()
	for part := range strings.SplitSeq(text, "# at ") {
		head, body, ok := strings.Cut(part, "\n")
		if !ok {
			continue
		}
		at, _, _ := strings.Cut(head, ":")
		d, err := time.ParseDuration(at)
		if err != nil || len(out) > 0 && out[len(out)-1].at >= d {
			t.Fatalf("%q: %v", head, err)
		}
		out = append(out, page{d, strings.TrimSpace(body)})
	}
	if len(out) == 0 {
		t.Fatalf("no page in %q", text)
	}
	return out
}

// readPages reads a recording of real code.
func readPages(t *testing.T, name string) []page {
	t.Helper()
	text, err := os.ReadFile("testdata/series/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return parsePages(t, string(text))
}

// samples returns the samples of a page, by their labels.
func (p page) samples(t *testing.T) map[string]sample {
	t.Helper()
	parse := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parse.TextToMetricFamilies(strings.NewReader(p.text + "\n"))
	if err != nil {
		t.Fatalf("%v in %q", err, p.text)
	}
	out := map[string]sample{}
	for name, f := range families {
		for _, m := range f.Metric {
			b := labels.NewScratchBuilder(8)
			b.Add(labels.MetricName, name)
			for _, l := range m.Label {
				b.Add(l.GetName(), l.GetValue())
			}
			b.Sort()
			s := sample{b.Labels(), m.GetUntyped().GetValue()}
			switch {
			case m.Counter != nil:
				s.value = m.Counter.GetValue()
			case m.Gauge != nil:
				s.value = m.Gauge.GetValue()
			}
			out[s.labels.String()] = s
		}
	}
	return out
}

type sample struct {
	labels labels.Labels
	value  float64
}

// A fleet is a Prometheus that scrapes recordings.
type fleet struct {
	*testing.T
	nodes  map[string][]page            // by instance
	before map[string]map[string]sample // the previous scrape
	db     *tsdb.DB
	groups map[string]*rules.Group
}

func newFleet(t *testing.T, nodes map[string][]page) *fleet {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	options := tsdb.DefaultOptions()
	options.RetentionDuration = (1000 * 24 * time.Hour).Milliseconds()
	db, err := tsdb.Open(t.TempDir(), log, prometheus.NewRegistry(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	parse := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{Logger: log, MaxSamples: 10_000_000, Timeout: time.Minute, Parser: parse})
	m := rules.NewManager(&rules.ManagerOptions{Context: t.Context(), QueryFunc: rules.EngineQueryFunc(engine, db), AppendableV2: db,
		Queryable: db, Logger: log, Registerer: prometheus.NewRegistry(), Parser: parse, MaxConcurrentEvals: 1,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}})
	groups, errs := m.LoadGroups(step, labels.EmptyLabels(), "", nil, false, "../../packaging/grafana/rules.yaml")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return &fleet{t, nodes, map[string]map[string]sample{}, db, groups}
}

// scrape stores what each node serves at a time. As in a real scrape, a series that a node no longer serves ends at once.
func (f *fleet) scrape(at time.Duration) {
	f.Helper()
	a, now := f.db.Appender(f.Context()), start.Add(at).UnixMilli()
	add := func(instance string, l labels.Labels, v float64) {
		b := labels.NewBuilder(l)
		b.Set("instance", instance).Set("job", "kubelet").Set("metrics_path", "/metrics")
		if _, err := a.Append(0, b.Labels(), now, v); err != nil {
			f.Fatal(err)
		}
	}
	for instance, pages := range f.nodes {
		i := len(pages) - 1
		for i >= 0 && pages[i].at > at {
			i--
		}
		if i < 0 {
			continue // Prometheus does not know the node yet
		}
		up, found := 1.0, map[string]sample{}
		if pages[i].text == away {
			up = 0
		} else {
			found = pages[i].samples(f.T)
		}
		add(instance, labels.FromStrings(labels.MetricName, "up"), up)
		for key, s := range found {
			add(instance, s.labels, s.value)
			delete(f.before[instance], key)
		}
		for _, s := range f.before[instance] {
			add(instance, s.labels, math.Float64frombits(value.StaleNaN))
		}
		f.before[instance] = found
	}
	if err := a.Commit(); err != nil {
		f.Fatal(err)
	}
}

// run returns the times at which the set of firing alerts changes, with the alerts: "12m IsletA IsletB".
func (f *fleet) run(until time.Duration) (changes []string, fired map[string]bool) {
	f.Helper()
	last, fired := "", map[string]bool{}
	for at := time.Duration(0); at <= until; at += step {
		f.scrape(at)
		var firing []string
		for _, g := range f.groups {
			g.Eval(f.Context(), start.Add(at))
			for _, r := range g.Rules() {
				if err := r.LastError(); err != nil {
					f.Fatalf("%s: %v", r.Name(), err)
				}
				alert, ok := r.(*rules.AlertingRule)
				if ok && slices.ContainsFunc(alert.ActiveAlerts(), func(a *rules.Alert) bool { return a.State == rules.StateFiring }) {
					firing = append(firing, r.Name())
					fired[r.Name()] = true
				}
			}
		}
		slices.Sort(firing)
		if now := strings.Join(firing, " "); now != last {
			changes, last = append(changes, strings.TrimSpace(fmt.Sprintf("%s %s", short(at), now))), now
		}
	}
	return changes, fired
}

// short writes a duration without zeros at its end.
func short(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "0s")
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// merge returns a recording with the series of all the given ones.
func merge(t *testing.T, all ...[]page) (out []page) {
	t.Helper()
	var times []time.Duration
	for _, pages := range all {
		for _, p := range pages {
			times = append(times, p.at)
		}
	}
	slices.Sort(times)
	for _, at := range slices.Compact(times) {
		p := page{at: at}
		for _, pages := range all {
			i := len(pages) - 1
			for i > 0 && pages[i].at > at {
				i--
			}
			p.text += pages[i].text + "\n"
		}
		out = append(out, p)
	}
	return out
}

// without returns a recording in which the node cannot be reached for a time.
func without(pages []page, from, until time.Duration) (out []page) {
	last := pages[0]
	for _, p := range pages {
		if p.at <= until {
			last = p
		}
		if p.at < from {
			out = append(out, p)
		}
	}
	out = append(out, page{from, away}, page{until, last.text})
	for _, p := range pages {
		if p.at > until {
			out = append(out, p)
		}
	}
	return out
}

// gone returns a fleet in which the nodes from first to end-1 cannot be reached for nine hours.
func gone(nodes map[string][]page, first, end int, from time.Duration) map[string][]page {
	for i := first; i < end; i++ {
		name := fmt.Sprintf("node-%d", i)
		nodes[name] = without(nodes[name], from, from+9*time.Hour)
	}
	return nodes
}

// shifted returns a recording of a node whose clock is ahead: the times of its events are later.
func shifted(t *testing.T, pages []page, ahead time.Duration) (out []page) {
	t.Helper()
	for _, p := range pages {
		text := ""
		for _, s := range p.samples(t) {
			name := s.labels.Get(labels.MetricName)
			if strings.HasSuffix(name, "_result") {
				s.value += ahead.Seconds()
			}
			text += fmt.Sprintf("%s%s %v\n", name, s.labels.DropMetricName(), s.value)
		}
		out = append(out, page{p.at, text})
	}
	return out
}

// later returns the recording of a node that Prometheus does not scrape before the time from.
func later(pages []page, from time.Duration) (out []page) {
	for _, p := range pages {
		if p.at < from {
			out = []page{{from, p.text}}
			continue
		}
		out = append(out, p)
	}
	return out
}

// twice checks that an active alert does not end and fire again because some scrapes of the node fail.
func twice(t *testing.T, pages []page, until time.Duration, changes []string) {
	t.Helper()
	for _, change := range changes {
		head, names, _ := strings.Cut(change, " ")
		at, err := time.ParseDuration(head)
		if err != nil {
			t.Fatal(err)
		}
		if names == "" || slices.ContainsFunc(pages, func(p page) bool { return p.at > at && p.at < at+30*time.Minute }) {
			continue
		}
		got, _ := newFleet(t, map[string][]page{"n": without(pages, at+10*time.Minute, at+20*time.Minute)}).run(min(until, at+2*time.Hour))
		before, ended := []string{}, map[string]bool{}
		for _, c := range got {
			now := strings.Fields(c)[1:]
			for _, name := range before {
				ended[name] = ended[name] || !slices.Contains(now, name)
			}
			for _, name := range now {
				if ended[name] {
					t.Errorf("the link is down for ten minutes after %s: %s fires again: %q, without that %q", head, name, got, changes)
					ended[name] = false
				}
			}
			before = now
		}
	}
}

// TestAlerts replays recordings of nodes, and checks when each alert fires and when it stops firing. Real code has made the recordings in
// testdata/series. The others are series that every node has from the start of its agent (TestFigures, TestFiguresOfWork).
func TestAlerts(t *testing.T) {
	update, configuration, bundle := readPages(t, "update"), readPages(t, "configuration"), readPages(t, "bundle")
	network, failing := readPages(t, "network"), merge(t, update[:3], configuration[:3], bundle[:3])
	accepted := parsePages(t, "# at 0s: \n# at 31m: \nislet_update_result{outcome=\"accepted\"} "+
		fmt.Sprint(start.Add(31*time.Minute).Unix()))
	many := func(failing int) map[string][]page {
		out := map[string][]page{}
		for i := range 100 {
			out[fmt.Sprintf("node-%d", i)] = accepted
		}
		for i := range failing {
			out[fmt.Sprintf("node-%d", i)] = update
		}
		return out
	}
	ring := func(nodes, refusing, pages int) map[string][]page {
		out := map[string][]page{}
		for i := range nodes {
			out[fmt.Sprintf("node-%d", i)] = readPages(t, "rollout")[:pages]
		}
		for i := range refusing {
			out[fmt.Sprintf("node-%d", i)] = readPages(t, "rollout-refused")[:pages]
		}
		return out
	}
	counters := parsePages(t, `# at 0s: a node
islet_events_dropped_total 4
islet_system_oom_kills_total 0
# at 1h: something happens
islet_events_dropped_total 9
islet_system_oom_kills_total 1
`)
	fired := map[string]bool{}
	for _, c := range []struct {
		what  string
		nodes map[string][]page
		until time.Duration
		want  []string
	}{
		{"the first trial of a version fails", map[string][]page{"n": update}, 5 * time.Hour,
			[]string{"32m IsletUpdateTrialFailed IsletUpdatesFail", "3h32m"}},
		{"no other trial follows", map[string][]page{"n": update[:3]}, 30 * time.Hour,
			[]string{"32m IsletUpdateTrialFailed IsletUpdatesFail", "24h32m"}},
		{"the link is down while the trial fails", map[string][]page{"n": without(update[:3], 10*time.Minute, 6*time.Hour)}, 30 * time.Hour,
			[]string{"6h IsletUpdateTrialFailed IsletUpdatesFail", "24h32m"}},
		{"Prometheus finds the node after the failure", map[string][]page{"n": later(update[:3], 2*time.Hour)}, 30 * time.Hour,
			[]string{"2h IsletUpdateTrialFailed IsletUpdatesFail", "24h32m"}},
		{"the version fails on 2 % of the nodes", many(2), 5 * time.Hour, []string{"32m IsletUpdateTrialFailed", "3h32m"}},
		{"the version fails on 3 % of the nodes", many(3), 5 * time.Hour,
			[]string{"32m IsletUpdateTrialFailed IsletUpdatesFail", "3h32m"}},
		{"a configuration fails", map[string][]page{"n": configuration}, 5 * time.Hour,
			[]string{"32m IsletConfigurationTrialFailed", "1h2m IsletConfigurationNotUsed IsletConfigurationTrialFailed", "3h32m"}},
		{"a bundle fails", map[string][]page{"n": bundle}, 9 * time.Hour, []string{"40m IsletBundleFailed", "4h10m"}},
		{"the node is away while the alert is active", map[string][]page{"n": without(update[:3], 2*time.Hour, 20*time.Hour)},
			30 * time.Hour, []string{"32m IsletUpdateTrialFailed IsletUpdatesFail", "24h32m"}},
		{"the node is away when the alert ends", map[string][]page{"n": without(update[:3], 23*time.Hour, 30*time.Hour)}, 32 * time.Hour,
			[]string{"32m IsletUpdateTrialFailed IsletUpdatesFail", "24h32m"}},
		{"a version is accepted, and then the node is away", map[string][]page{"n": without(update, 4*time.Hour, 9*time.Hour)},
			10 * time.Hour, []string{"32m IsletUpdateTrialFailed IsletUpdatesFail", "3h32m"}},
		{"a version fails after another was accepted", map[string][]page{"n": append(accepted[:2:2], page{2 * time.Hour,
			fmt.Sprintf("islet_update_result{outcome=\"failed\"} %d", start.Add(2*time.Hour).Unix())})}, 27 * time.Hour,
			[]string{"2h IsletUpdateTrialFailed IsletUpdatesFail", "26h"}},
		{"many of the nodes on which the version did not fail are away", gone(many(2), 20, 100, time.Hour), 5 * time.Hour,
			[]string{"32m IsletUpdateTrialFailed", "3h32m"}},
		{"the nodes on which the version failed are away", gone(many(10), 0, 10, time.Hour), 11 * time.Hour,
			[]string{"32m IsletUpdateTrialFailed IsletUpdatesFail", "10h"}},
		{"the clock is two hours ahead", map[string][]page{"n": shifted(t, update, 2*time.Hour)}, 5 * time.Hour,
			[]string{"32m IsletUpdateTrialFailed IsletUpdatesFail", "3h32m"}},
		{"the clock is a year ahead", map[string][]page{"n": shifted(t, failing, 365*24*time.Hour)}, 26 * time.Hour,
			[]string{"1h2m IsletConfigurationNotUsed"}},
		{"a node of a ring refuses the version", ring(20, 1, 5), 6 * time.Hour, []string{"2h IsletRolloutRefused", "3h58m"}},
		{"the node that refuses the version is away", gone(ring(20, 1, 3), 0, 1, 3*time.Hour), 20 * time.Hour,
			[]string{"2h IsletRolloutRefused"}},
		{"nodes that do not refuse the version are away", gone(ring(20, 1, 3), 8, 20, 3*time.Hour), 12 * time.Hour,
			[]string{"2h IsletRolloutRefused"}},
		{"2 % refuse the version, and most other nodes are away", gone(ring(100, 2, 3), 20, 100, 3*time.Hour), 6 * time.Hour, nil},
		{"another program damages the network", map[string][]page{"n": network}, 10 * time.Hour,
			[]string{"5h IsletNetworkRepairedOften", "8h14m"}},
		{"memory runs out, and events are dropped", map[string][]page{"n": counters}, 30 * time.Hour,
			[]string{"1h IsletEventsDropped IsletMachineOutOfMemory", "24h58m"}},
		{"the same while the link is down", map[string][]page{"n": without(counters, 30*time.Minute, 8*time.Hour)}, 36 * time.Hour,
			[]string{"8h IsletEventsDropped IsletMachineOutOfMemory", "24h28m"}},
		{"the link is down for two days", map[string][]page{"n": without(counters[:1], time.Hour, 49*time.Hour)}, 50 * time.Hour,
			[]string{"24h58m IsletNodeAway", "49h"}},
		{"the agent starts again and again", map[string][]page{"n": parsePages(t, `# at 0s: x
process_start_time_seconds 1
# at 10m: x
process_start_time_seconds 2
# at 12m: x
process_start_time_seconds 3
# at 14m: x
process_start_time_seconds 4
# at 16m: x
process_start_time_seconds 5
# at 18m: x
process_start_time_seconds 6
# at 20m: x
process_start_time_seconds 7
`)}, 3 * time.Hour, []string{"20m IsletRestartsOften", "1h8m"}},
		{"the certificate is not renewed", map[string][]page{"n": parsePages(t, `# at 0s: x
kubelet_certificate_manager_client_ttl_seconds 700000
# at 2h: x
kubelet_certificate_manager_client_ttl_seconds 600000
# at 5h: x
kubelet_certificate_manager_client_ttl_seconds 31000000
`)}, 6 * time.Hour, []string{"3h IsletClientCertificateExpires", "5h"}},
		{"a pod writes too much", map[string][]page{"n": parsePages(t, `# at 0s: x
islet_flash_written_bytes_total{cause="images"} 10
islet_flash_written_bytes_total{cause="pods"} 1000
islet_flash_budget_bytes 500
# at 3h: x
islet_flash_written_bytes_total{cause="images"} 20
islet_flash_written_bytes_total{cause="pods"} 1600
islet_flash_budget_bytes 500
`)}, 30 * time.Hour, []string{"3h IsletFlashBudgetExceeded", "26h58m"}},
		{"all is well", map[string][]page{"n": merge(t, update[:1], configuration[4:], bundle[4:5], network[:2], counters[:1])},
			26 * time.Hour, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			got, names := newFleet(t, c.nodes).run(c.until)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if len(c.nodes) == 1 {
				twice(t, c.nodes["n"], c.until, got)
			}
			for name := range names {
				fired[name] = true
			}
		})
	}
	for _, g := range newFleet(t, nil).groups {
		for _, r := range g.Rules() {
			if !fired[r.Name()] && !t.Failed() {
				t.Errorf("no case makes %s fire", r.Name())
			}
		}
	}
}
