package upstream

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/metrics"
	info "github.com/google/cadvisor/lib/model"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/clock"
)

var update = flag.Bool("update", false, "write the list anew")

const list = "../../../agent/pod/figures/testdata/upstream.txt"

// TestList checks that the stored list equals the metrics of the Kubernetes module with which the cluster tests are built.
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
		t.Errorf("%s differs from upstream's list (%v): go test ./upstream -update", list, err)
	}
}

func line(page, name, kind, stability string, labels []string) string {
	slices.Sort(labels)
	return fmt.Sprintf("%s %s %s %s %s", page, name, strings.ToLower(kind), stability, strings.Join(labels, ","))
}

// A measured is a source of cAdvisor's figures. It contains one value of each kind.
type measured struct{ t *testing.T }

func (m measured) GetRequestedContainersInfo(string, info.RequestOptions) (map[string]*info.ContainerInfo, error) {
	one := filled[info.ContainerInfo](m.t)
	for _, s := range one.Stats {
		s.CustomMetrics = nil // only for containers with custom metrics
	}
	return map[string]*info.ContainerInfo{"/": &one}, nil
}

func (m measured) GetVersionInfo() (*info.VersionInfo, error) {
	one := filled[info.VersionInfo](m.t)
	return &one, nil
}

func (m measured) GetMachineInfo() (*info.MachineInfo, error) {
	one := filled[info.MachineInfo](m.t)
	return &one, nil
}

// filled returns a value in which every field is non-zero and every slice and map has one element.
func filled[T any](t *testing.T) (out T) {
	fill(t, reflect.ValueOf(&out).Elem())
	return out
}

func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(t, f)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Interface: // no figures
	default:
		t.Fatalf("cAdvisor has a %s among its figures", v.Type())
	}
}

var desc = regexp.MustCompile(`fqName: "(\w+)"`)

func nameOf(t *testing.T, d *prometheus.Desc) string {
	t.Helper()
	m := desc.FindStringSubmatch(d.String())
	if m == nil {
		t.Fatalf("cannot read %s", d)
	}
	return m[1]
}

// cadvisor returns the metrics that cAdvisor collects for a kubelet, with the labels that a kubelet adds to containers.
func cadvisor(t *testing.T) (out []string) {
	t.Helper()
	set := container.MetricSet{}
	for _, k := range []container.MetricKind{container.CpuUsageMetrics, container.MemoryUsageMetrics, container.CpuLoadMetrics, container.DiskIOMetrics, container.DiskUsageMetrics,
		container.NetworkUsageMetrics, container.AppMetrics, container.ProcessMetrics, container.OOMMetrics, container.PressureMetrics} {
		set[k] = struct{}{}
	}
	who := func(*info.ContainerInfo) map[string]string {
		return map[string]string{"container": "c", "id": "/", "image": "i", "name": "n", "namespace": "ns", "pod": "p"}
	}
	described, told := make(chan *prometheus.Desc, 1000), make(chan prometheus.Metric, 1000)
	for _, c := range []prometheus.Collector{metrics.NewPrometheusCollector(measured{t}, who, set, clock.RealClock{}, info.RequestOptions{}), metrics.NewPrometheusMachineCollector(measured{t}, set)} {
		c.Describe(described)
		c.Collect(told)
	}
	close(described)
	close(told)
	seen := map[string]bool{}
	for m := range told {
		var v dto.Metric
		if err := m.Write(&v); err != nil {
			t.Fatal(err)
		}
		name, kind := nameOf(t, m.Desc()), ""
		switch {
		case v.Counter != nil:
			kind = "counter"
		case v.Gauge != nil:
			kind = "gauge"
		default:
			t.Errorf("%s is neither a gauge nor a counter: %s", name, &v)
		}
		var labels []string
		for _, l := range v.Label {
			labels = append(labels, l.GetName())
		}
		seen[name] = true
		out = append(out, line("/metrics/cadvisor", name, kind, "-", labels))
	}
	for d := range described {
		if name := nameOf(t, d); !seen[name] {
			t.Errorf("%s is described, but was not collected", name)
		}
	}
	return out
}
