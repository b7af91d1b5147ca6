// Command prometheus scrapes the kubelet's pages a few times, evaluates a file of rules, and prints
// the result of each rule as JSON. It uses Prometheus' packages for scraping, storage and rules.
//
//	node:10250 --scrape--> tsdb (a temporary directory) <--rules--> {"rule": samples}
//	             kube_pod_info, as in kube-state-metrics, from -pods
//
// It is a separate module, because no other program needs its dependencies. The tests of nodes run
// it in the network namespace of a node (test/node, test/cluster/node, make test-prometheus).
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// pages contains the scraped pages of a node. All pages have the job kubelet, as in kube-prometheus.
var pages = []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"}

func main() {
	target := flag.String("target", "127.0.0.1:10250", "address of the node")
	token := flag.String("token", "", "file of a bearer token")
	node := flag.String("node", "edge", "name of the node")
	pods := flag.String("pods", "", "pods of the node, NAMESPACE/NAME with commas between")
	files := flag.String("rules", "", "files of rules, with commas between")
	shown := flag.String("dashboard", "", "file of a Grafana dashboard, whose queries are evaluated too")
	scrapes := flag.Int("scrapes", 5, "scrapes before the rules are evaluated, two seconds apart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out, err := run(ctx, *target, *token, *node, strings.Split(*pods, ","), strings.Split(*files, ","), *shown, *scrapes)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(out)
}

// A Result contains the errors of the pages and the results of the rules.
type Result struct {
	Targets map[string]string // the error of each page; empty if the page was scraped
	Series  int
	Rules   map[string]Rule // by name; the name of an alert follows "alert ", the title of a panel "panel "
}

// A Rule contains the result of a rule.
type Rule struct {
	Samples int    // samples of a recording rule
	Active  int    // alerts, pending or firing
	Error   string `json:",omitempty"`
	Example string `json:",omitempty"`
}

func run(ctx context.Context, target, token, node string, pods, files []string, shown string, scrapes int) (*Result, error) {
	dir, err := os.MkdirTemp("", "prometheus-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := tsdb.Open(dir, log, prometheus.NewRegistry(), tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	parse := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{Logger: log, MaxSamples: 10_000_000, Timeout: time.Minute, EnableAtModifier: true,
		Parser: parse})
	query := rules.EngineQueryFunc(engine, db)

	manager, stop, err := startScraping(log, db, target, token)
	if err != nil {
		return nil, err
	}
	defer stop()
	enough := fmt.Sprintf("min(count_over_time(up[5m])) >= %d and count(up) == %d", scrapes, len(pages))
	for {
		now := time.Now()
		if err := appendPodInfo(ctx, db, now, node, pods); err != nil {
			return nil, err
		}
		if v, err := query(ctx, enough, now); err != nil {
			return nil, err
		} else if len(v) > 0 {
			break
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	out := &Result{Targets: map[string]string{}, Rules: map[string]Rule{}, Series: int(db.Head().NumSeries())}
	for page, all := range manager.TargetsActive() {
		for _, t := range all {
			out.Targets[page] = ""
			if t.LastError() != nil {
				out.Targets[page] = t.LastError().Error()
			}
		}
	}
	if err := evaluate(ctx, log, db, query, parse, files, out); err != nil {
		return nil, err
	}
	return out, evaluatePanels(ctx, query, shown, out)
}

// startScraping starts to scrape the pages. It returns a function that ends the scraping.
func startScraping(log *slog.Logger, db *tsdb.DB, target, token string) (*scrape.Manager, func(), error) {
	text := "global: {scrape_interval: 2s, scrape_timeout: 2s}\nscrape_configs:\n"
	for _, page := range pages {
		text += fmt.Sprintf(`- job_name: %s
  metrics_path: %s
  scheme: https
  tls_config: {insecure_skip_verify: true}
  relabel_configs: [{target_label: job, replacement: kubelet}, {source_labels: [__metrics_path__], target_label: metrics_path}]
`, page, page)
		if token != "" {
			text += "  authorization: {credentials_file: " + token + "}\n"
		}
	}
	c, err := config.Load(text, log)
	if err != nil {
		return nil, nil, err
	}
	m, err := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: model.Duration(100 * time.Millisecond)}, log, nil, nil, db,
		prometheus.NewRegistry())
	if err != nil {
		return nil, nil, err
	}
	if err := m.ApplyConfig(c); err != nil {
		return nil, nil, err
	}
	targets := map[string][]*targetgroup.Group{}
	for _, page := range pages {
		targets[page] = []*targetgroup.Group{{Source: page, Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(target)}}}}
	}
	sets, ended := make(chan map[string][]*targetgroup.Group, 1), make(chan struct{})
	sets <- targets
	go func() { defer close(ended); m.Run(sets) }()
	return m, func() { m.Stop(); <-ended }, nil
}

// appendPodInfo stores a sample of kube_pod_info for each pod. The sample maps the pod to its node.
func appendPodInfo(ctx context.Context, db *tsdb.DB, now time.Time, node string, pods []string) error {
	a := db.Appender(ctx)
	for _, p := range pods {
		namespace, name, ok := strings.Cut(p, "/")
		if !ok {
			continue
		}
		of := labels.FromStrings(labels.MetricName, "kube_pod_info", "job", "kube-state-metrics", "namespace", namespace, "pod", name,
			"node", node)
		if _, err := a.Append(0, of, now.UnixMilli(), 1); err != nil {
			return err
		}
	}
	return a.Commit()
}

// evaluate evaluates each group of the files twice, because the rules of a group may use the results
// of other groups.
func evaluate(ctx context.Context, log *slog.Logger, db *tsdb.DB, query rules.QueryFunc, parse parser.Parser, files []string,
	out *Result) error {
	m := rules.NewManager(&rules.ManagerOptions{Context: ctx, QueryFunc: query, AppendableV2: db, Queryable: db, Logger: log,
		Registerer: prometheus.NewRegistry(), Parser: parse,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, MaxConcurrentEvals: 1})
	groups, errs := m.LoadGroups(time.Second, labels.EmptyLabels(), "", nil, false, files...)
	if len(errs) > 0 {
		return fmt.Errorf("%v: %v", files, errs)
	}
	for range 2 {
		now := time.Now()
		for _, g := range groups {
			g.Eval(ctx, now)
		}
	}
	for _, g := range groups {
		for _, r := range g.Rules() {
			one, name := Rule{}, cmp.Or(r.Labels().Get("rule"), r.Name())
			if err := r.LastError(); err != nil {
				one.Error = err.Error()
			}
			switch r := r.(type) {
			case *rules.AlertingRule:
				name = "alert " + r.Name()
				if active := r.ActiveAlerts(); len(active) > 0 {
					one.Active, one.Example = len(active), fmt.Sprint(active[0].Labels, " ", active[0].Value)
				}
			default:
				v, err := query(ctx, r.Name(), time.Now())
				if err != nil {
					return err
				}
				if one.Samples = len(v); one.Samples > 0 {
					one.Example = v[0].String()
				}
			}
			out.Rules[name] = one
		}
	}
	return nil
}

// evaluatePanels evaluates the queries of a dashboard as Grafana does for all nodes.
func evaluatePanels(ctx context.Context, query rules.QueryFunc, file string, out *Result) error {
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".+")
	for _, p := range dashboard.Panels {
		for i, target := range p.Targets {
			one := Rule{}
			v, err := query(ctx, variables.Replace(target.Expr), time.Now())
			if err != nil {
				one.Error = err.Error()
			}
			if one.Samples = len(v); one.Samples > 0 {
				one.Example = v[0].String()
			}
			out.Rules[fmt.Sprintf("panel %s, query %d", p.Title, i+1)] = one
		}
	}
	return nil
}
