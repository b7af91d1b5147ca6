package figures

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// Rules is the output of test/prometheus: the results of the Prometheus rules for kubelets, evaluated with the metrics of a node.
type Rules struct {
	Targets map[string]string // the error of each page; empty if the page was scraped
	Series  int
	Rules   map[string]Rule
}

// A Rule is the result of one Prometheus rule: its number of samples or of active alerts.
type Rule struct {
	Samples, Active int
	Error, Example  string
}

// Control is the name of an alert that must be active. The active alert proves that the tool
// detects active alerts.
const Control = "alert control"

// optionalRules contains the rules that have results only on some hosts or only for some pods. The
// values are the reasons.
var optionalRules = map[string]string{
	"pressure":                  "cgroup v1 has no pressure metrics",
	"storage: IO of containers": "a container that has read and written nothing has no line, as with cAdvisor",
}

// Scrape runs the program tool (test/prometheus) in a machine. The program scrapes the machine's agent, and evaluates the rules for a
// kubelet, the alerts for islet, and the queries of its dashboard (packaging/grafana).
func Scrape(t testing.TB, m *machine.Machine, tool string, args ...string) (got Rules) {
	t.Helper()
	root := machine.Root(t)
	files := filepath.Join(root, "test/prometheus/testdata/rules.yaml") + "," + filepath.Join(root, "packaging/grafana/rules.yaml")
	dashboard := filepath.Join(root, "packaging/grafana/dashboard.json")
	cmd := m.Command(tool, append([]string{"-rules", files, "-dashboard", dashboard}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return got
}

// Check verifies that every rule has data, and that no alert except Control is active. The map without contains the rules that must have no
// data, with the reasons. The first result lists the violations. The second result lists notes for the test's log.
func (r Rules) Check(without map[string]string) (wrong, notes []string) {
	notes = append(notes, fmt.Sprintf("%d series", r.Series))
	for _, page := range Pages {
		if err, ok := r.Targets[page]; err != "" || !ok {
			wrong = append(wrong, fmt.Sprintf("%s is not scraped: %s", page, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(without)) {
		if _, ok := r.Rules[name]; !ok {
			wrong = append(wrong, name+" is in the list of rules without data, but does not exist")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Rules)) {
		x, why := r.Rules[name], without[name]
		switch alert := strings.HasPrefix(name, "alert "); {
		case x.Error != "":
			wrong = append(wrong, name+": "+x.Error)
		case alert && (x.Active > 0) != (name == Control):
			wrong = append(wrong, fmt.Sprintf("%s: %d are active, %s", name, x.Active, x.Example))
		case alert:
		case x.Samples == 0 && why == "" && optionalRules[name] != "":
			notes = append(notes, fmt.Sprintf("%s has no data here: %s", name, optionalRules[name]))
		case x.Samples == 0 && strings.HasPrefix(name, "panel "):
			notes = append(notes, name+" has no data here")
		case x.Samples == 0 && why == "":
			wrong = append(wrong, name+" has no data")
		case x.Samples > 0 && why != "":
			wrong = append(wrong, fmt.Sprintf("%s has the data %s, but is in the list of rules without data: %s", name, x.Example, why))
		default:
			notes = append(notes, fmt.Sprintf("%s: %d %s%s", name, x.Samples, x.Example, why))
		}
	}
	return wrong, notes
}

// ActiveAlerts returns the sorted names of the alerts that are pending or firing. It leaves out the alert Control, which must be active.
func (r Rules) ActiveAlerts(t testing.TB) (names []string) {
	t.Helper()
	if r.Rules[Control].Active == 0 {
		t.Errorf("%s is not active", Control)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Rules)) {
		if alert, ok := strings.CutPrefix(name, "alert "); ok && name != Control && r.Rules[name].Active > 0 {
			names = append(names, alert)
		}
	}
	return names
}

// MustPass fails the test if Check returns violations, or if there are fewer rules, alerts or panels with data than expected.
func (r Rules) MustPass(t testing.TB, without map[string]string) {
	t.Helper()
	wrong, notes := r.Check(without)
	for _, line := range notes {
		t.Log(line)
	}
	for _, line := range wrong {
		t.Error(line)
	}
	alerts, panels := 0, 0
	for name, x := range r.Rules {
		switch {
		case strings.HasPrefix(name, "alert "):
			alerts++
		case strings.HasPrefix(name, "panel ") && x.Samples > 0:
			panels++
		}
	}
	if alerts < 29 || panels < 18 || len(r.Rules) < 90 {
		t.Errorf("%d rules, %d of them alerts; %d queries of the dashboard have data", len(r.Rules), alerts, panels)
	}
}
