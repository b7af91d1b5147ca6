package upstream

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cadvisor/container"
	info "github.com/google/cadvisor/info/v1"
	v2 "github.com/google/cadvisor/info/v2"
	"github.com/google/cadvisor/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the list anew")

const list = "../../../agent/figures/testdata/upstream.txt"

// TestList: the list is that of the module that the cluster tests build.
func TestList(t *testing.T) {
	lines := append(kubelet(t), cadvisor(t)...)
	slices.Sort(lines)
	got := []byte(strings.Join(slices.Compact(lines), "\n") + "\n")
	if *update {
		if err := os.WriteFile(list, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want, err := os.ReadFile(list); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is another than upstream's list (%v): go test ./upstream -update", list, err)
	}
}

func line(page, name, kind, stability string, labels []string) string {
	slices.Sort(labels)
	return fmt.Sprintf("%s %s %s %s %s", page, name, strings.ToLower(kind), stability, strings.Join(labels, ","))
}

// kubelet reads the list that Kubernetes makes of all that its components register.
func kubelet(t *testing.T) (out []string) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "test/instrumentation/documentation/documentation-list.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name, Subsystem, Namespace, Type, StabilityLevel string
		Labels                                           []string
		ConstLabels                                      map[string]string
		ComponentEndpoints                               []struct{ Component, Endpoint string }
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		parts := slices.DeleteFunc([]string{m.Namespace, m.Subsystem, m.Name}, func(s string) bool { return s == "" })
		for _, at := range m.ComponentEndpoints {
			if at.Component == "kubelet" {
				out = append(out, line(at.Endpoint, strings.Join(parts, "_"), m.Type, m.StabilityLevel, m.Labels))
			}
		}
	}
	return out
}

type nothing struct{}

func (nothing) GetRequestedContainersInfo(string, v2.RequestOptions) (map[string]*info.ContainerInfo, error) {
	return nil, nil
}
func (nothing) GetVersionInfo() (*info.VersionInfo, error) { return &info.VersionInfo{}, nil }
func (nothing) GetMachineInfo() (*info.MachineInfo, error) { return &info.MachineInfo{}, nil }

var desc = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`)

// cadvisor asks cAdvisor's collectors with what a kubelet has them collect. They do not say
// of which type a metric is: by its source a counter is what has the name of one, but for
// container_memory_failcnt and container_fs_inodes_total. Of machines they leave out the
// labels that all have.
func cadvisor(t *testing.T) (out []string) {
	t.Helper()
	set := container.MetricSet{}
	for _, k := range []container.MetricKind{container.CpuUsageMetrics, container.MemoryUsageMetrics, container.CpuLoadMetrics, container.DiskIOMetrics, container.DiskUsageMetrics,
		container.NetworkUsageMetrics, container.AppMetrics, container.ProcessMetrics, container.OOMMetrics, container.PressureMetrics} {
		set[k] = struct{}{}
	}
	all := make(chan *prometheus.Desc, 1000)
	metrics.NewPrometheusCollector(nothing{}, nil, set, clock.RealClock{}, v2.RequestOptions{}).Describe(all)
	metrics.NewPrometheusMachineCollector(nothing{}, set).Describe(all)
	close(all)
	for d := range all {
		m := desc.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		kind := "gauge"
		if strings.HasSuffix(m[1], "_total") && m[1] != "container_fs_inodes_total" || m[1] == "container_memory_failcnt" {
			kind = "counter"
		}
		var labels []string
		if m[2] != "" {
			labels = strings.Split(m[2], ",")
		}
		if strings.HasPrefix(m[1], "container_") && !strings.HasSuffix(m[1], "scrape_error") {
			labels = append(labels, "container", "id", "image", "name", "namespace", "pod")
		}
		if strings.HasPrefix(m[1], "machine_") && !strings.HasSuffix(m[1], "scrape_error") {
			labels = append(labels, "boot_id", "machine_id", "system_uuid")
		}
		out = append(out, line("/metrics/cadvisor", m[1], kind, "-", labels))
	}
	return out
}
