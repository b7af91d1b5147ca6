package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// noData are the rules that yield nothing on a node without a control plane, and why.
var noData = map[string]string{
	"KubeletClientCertificateExpiration":    "there is no API server, and so no certificate for it",
	"KubeletClientCertificateRenewalErrors": "the same",
	"KubeClientErrors":                      "the same",
	"kubelet: requests to the API server":   "the same",
	"KubeletServerCertificateExpiration":    "the node's own certificate is none that a cluster signed",
	"KubeletServerCertificateRenewalErrors": "the same",
	"KubeNodeEviction":                      "nothing was evicted: a kubelet too has the series from the first eviction on",
	"kubelet: errors of operations":         "no operation failed: the same",
	"KubePersistentVolumeFillingUp":         "a claim of a node by itself is a directory, without a size of its own",
	"KubePersistentVolumeInodesFillingUp":   "the same",
	"kubelet: volumes":                      "volume_manager_total_volumes counts what a kubelet's loop compares, which is not here: see docs/metrics.md",
	"kubelet: storage operations":           "what pods mount that lives and dies with them is no operation here; volumes of claims have them",
}

// mayLack are those that yield something only on some hosts, or of some pods.
var mayLack = map[string]string{
	"pressure":                  "cgroup v1 has none",
	"storage: IO of containers": "a container that has read and written nothing has no line, as with cAdvisor",
}

// TestPrometheus: a real Prometheus scrapes the node, and what the rules and dashboards of
// kubernetes-mixin take from a kubelet is there, but for what is listed.
func TestPrometheus(t *testing.T) {
	tool := os.Getenv("ISLET_PROMETHEUS")
	if tool == "" {
		t.Skip("make test-prometheus builds the parts of Prometheus that this needs")
	}
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	m.Write("kubelet.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupRoot: `+m.Cgroup+`
failSwapOn: false
podLogsDir: `+m.Disk+`/logs
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`+machine.Roomy)
	m.Write("manifests/limited.yaml", strings.Replace(manifest("limited", "", "serve", ":8080"), "    image:", "    resources: {limits: {cpu: 500m, memory: 32Mi}}\n    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}\n    volumeMounts: [{name: v, mountPath: /v}]\n    image:", 1)+
		"  volumes: [{name: v, emptyDir: {}}]\n")
	m.Write("manifests/plain.yaml", manifest("plain", "", "sleep"))
	m.StartAgent()
	m.WaitReady("limited-edge", "plain-edge")
	got := scrapeRules(t, m, tool, "-pods", "default/limited-edge,default/plain-edge")
	checkRules(t, got, noData)
}

// A scraped is what the tool prints.
type scraped struct {
	Targets map[string]string
	Series  int
	Rules   map[string]struct {
		Samples, Active int
		Error, Example  string
	}
}

func scrapeRules(t *testing.T, m *machine.Machine, tool string, args ...string) (got scraped) {
	t.Helper()
	rules := filepath.Join(machine.Root(t), "test/prometheus/testdata/rules.yaml")
	cmd := m.Command(tool, append([]string{"-rules", rules}, args...)...)
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

func checkRules(t *testing.T, got scraped, without map[string]string) {
	t.Helper()
	t.Logf("%d series", got.Series)
	if len(got.Targets) != 5 || len(got.Rules) < 30 {
		t.Errorf("%d pages, %d rules", len(got.Targets), len(got.Rules))
	}
	for page, err := range got.Targets {
		if err != "" {
			t.Errorf("%s: %s", page, err)
		}
	}
	var names []string
	alerts := 0
	for name := range got.Rules {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		r, why := got.Rules[name], without[name]
		switch {
		case r.Error != "":
			t.Errorf("%s: %s", name, r.Error)
		case strings.HasPrefix(name, "alert "):
			alerts++
			if (r.Active > 0) != (name == "alert control") {
				t.Errorf("%s: %d, %s", name, r.Active, r.Example)
			}
		case r.Samples == 0 && why == "" && mayLack[name] != "":
			t.Logf("%s yields nothing here: %s", name, mayLack[name])
		case r.Samples == 0 && why == "":
			t.Errorf("%s yields nothing", name)
		case r.Samples > 0 && why != "":
			t.Errorf("%s yields %s, but %q", name, r.Example, why)
		default:
			t.Logf("%s: %d %s%s", name, r.Samples, r.Example, why)
		}
	}
	if alerts < 18 {
		t.Errorf("%d alerts, of all: %q", alerts, names)
	}
}
