package packaging

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/config"
)

// A rules contains the groups of alerts in a file of rules for Prometheus.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

// A dashboard contains the queries of a Grafana dashboard.
type dashboard struct {
	UID    string
	Panels []struct {
		Title, Type string
		Targets     []struct{ Expr string }
	}
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

var metricName = regexp.MustCompile(`\b[a-z]+_[a-z0-9_]+\b`)

// TestMonitoring checks that alerts and the dashboard use only metrics that the nodes serve, and that each alert explains itself.
// TestPrometheus evaluates them with the metrics of a real node.
func TestMonitoring(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{"process_start_time_seconds": true}
	for _, line := range strings.Split(string(page), "\n") {
		if cell := strings.Split(line, "|"); len(cell) > 5 && strings.HasPrefix(line, "| /") {
			name := strings.Trim(cell[2], " `")
			served[name] = true
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				served[name+suffix] = true
			}
		}
	}
	expressions := map[string]string{}
	var alerts rules
	readYAML(t, "grafana/rules.yaml", &alerts)
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			expressions[r.Alert] = r.Expr
			a := r.Annotations
			if !strings.HasPrefix(r.Alert, "Islet") || r.Labels["severity"] == "" || a["summary"] == "" || a["description"] == "" {
				t.Errorf("alert %q lacks a part: %v", r.Alert, r)
			}
			for _, file := range regexp.MustCompile(`docs/[a-z-]+\.md`).FindAllString(a["description"], -1) {
				if _, err := os.Stat("../" + file); err != nil {
					t.Errorf("%s: %v", r.Alert, err)
				}
			}
		}
	}
	var shown dashboard
	readYAML(t, "grafana/dashboard.json", &shown)
	for _, p := range shown.Panels {
		for _, q := range p.Targets {
			expressions[p.Title+": "+q.Expr] = q.Expr
		}
	}
	if len(expressions) < 30 {
		t.Errorf("%d expressions", len(expressions))
	}
	functions := []string{"max_over_time", "last_over_time", "histogram_quantile", "count_values"}
	for where, e := range expressions {
		e = regexp.MustCompile(`\{[^}]*\}|"[^"]*"|\b(by|on|without) \([^)]*\)|\$__[a-z_]+`).ReplaceAllString(e, " ")
		for _, name := range metricName.FindAllString(e, -1) {
			if !served[name] && !slices.Contains(functions, name) {
				t.Errorf("%s: no node serves %s", where, name)
			}
		}
	}
}

// TestIncreases checks that an alert counts only the increase of counters that a node serves from the start of its agent. A counter that
// first appears with its first event has no increase: the alert would miss this event. The lists of metrics that a node may lack belong to
// TestFigures and TestFiguresOfWork.
func TestIncreases(t *testing.T) {
	var late []*regexp.Regexp
	for file, list := range map[string]string{
		"../test/node/figures_test.go": "optionalMetrics", "../test/cluster/node/workfigures_test.go": "notDone",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(text), "var "+list+" = map[string]string{\n")
		rest, _, end := strings.Cut(rest, "\n}\n")
		if !ok || !end {
			t.Fatalf("%s has no list %s", file, list)
		}
		for _, m := range regexp.MustCompile("(?m)^\t`([^`]+)`: +\"(.*)\",$").FindAllStringSubmatch(rest, -1) {
			if m[2] != "a control plane" { // this node has none: the other list is for the others
				late = append(late, regexp.MustCompile("^("+m[1]+")$"))
			}
		}
	}
	if len(late) < 20 {
		t.Fatalf("%d patterns", len(late))
	}
	var alerts rules
	readYAML(t, "grafana/rules.yaml", &alerts)
	increase, found := regexp.MustCompile(`\b(increase|rate|irate|changes|resets)\(([a-z_]+)`), 0
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			if regexp.MustCompile(`\b(delta|idelta|deriv)\(`).MatchString(r.Expr) {
				t.Errorf("%s uses the difference of a gauge, which may be 0 after an event", r.Alert)
			}
			for _, m := range increase.FindAllStringSubmatch(r.Expr, -1) {
				found++
				if slices.ContainsFunc(late, func(p *regexp.Regexp) bool { return p.MatchString(m[2]) }) {
					t.Errorf("%s: %s may first appear with its first event", r.Alert, m[2])
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d counters", found)
	}
}

// TestKustomize checks that the PrometheusRule has the alerts of rules.yaml, that the dashboard is JSON, and that the configurations are
// valid.
func TestKustomize(t *testing.T) {
	var own, custom struct {
		rules
		Spec map[string]any
	}
	var file map[string]any
	readYAML(t, "grafana/rules.yaml", &file)
	readYAML(t, "kustomize/monitoring/prometheusrule.yaml", &custom)
	readYAML(t, "grafana/rules.yaml", &own)
	if !reflect.DeepEqual(custom.Spec, file) || len(own.Groups) == 0 {
		t.Error("prometheusrule.yaml differs from rules.yaml")
	}
	if data, err := os.ReadFile("grafana/dashboard.json"); err != nil || !json.Valid(data) {
		t.Errorf("dashboard.json: %v", err)
	}
	for _, name := range []string{"edge.yaml", "kubelet.yaml"} {
		data, err := os.ReadFile(filepath.Join("kustomize/node-configuration", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, mistakes, notices := config.Check(name, data); len(mistakes)+len(notices) > 0 {
			t.Errorf("%s: %v %v", name, mistakes, notices)
		}
	}
	files := map[string]bool{}
	for _, dir := range []string{"kustomize/node-configuration", "kustomize/monitoring", "kustomize/k3s-network", "grafana"} {
		var k struct {
			Resources          []string
			ConfigMapGenerator []struct{ Files, Envs []string }
		}
		readYAML(t, filepath.Join(dir, "kustomization.yaml"), &k)
		for _, r := range k.Resources {
			files[filepath.Join(dir, r)] = true
		}
		for _, g := range k.ConfigMapGenerator {
			for _, f := range append(g.Files, g.Envs...) {
				_, name, isNamed := strings.Cut(f, "=")
				if !isNamed {
					name = f
				}
				files[filepath.Join(dir, name)] = true
			}
		}
	}
	for _, f := range slices.Sorted(maps.Keys(files)) {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
	if len(files) < 6 {
		t.Errorf("%v", files)
	}
}
