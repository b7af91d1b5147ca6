package exposition

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// fullSubject returns a container with all figures.
func fullSubject(id string) Subject {
	d := cgroup.Details{Figures: cgroup.Figures{At: time.Unix(1000, 5e8), CPU: 1500 * time.Millisecond, Memory: 4096, WorkingSet: 2048, Limit: 1 << 20, PageFaults: 3, PIDs: 2},
		Created: time.Unix(900, 0), Quota: 50000, Period: 100000, Shares: 102, Periods: 9, Throttled: 4, ThrottledTime: 2500 * time.Millisecond,
		IO: []cgroup.IO{{Device: "254:0", ReadBytes: 5, WriteBytes: 6, Reads: 7, Writes: 8}}, Processes: 1, Reclaim: cgroup.Reclaim{Counted: true},
		Pressure: cgroup.Pressures{CPU: &cgroup.Pressure{Some: cgroup.Stall{Total: time.Second}}, Memory: &cgroup.Pressure{}, IO: &cgroup.Pressure{}}}
	return Subject{Group: &sample.Group{Path: "/kubepods/poda/" + id, Kind: sample.Container, Reading: cgroup.Reading{Details: &d, At: d.At}, Open: process.Files{Descriptors: 3, Sockets: 1, Known: true}, OpenLimit: 1024,
		Network: []process.Interface{{Name: "eth0", Received: 100, Sent: 200}}}, Container: "main", Pod: "web", Namespace: "default", Image: `in"side\`, Name: id,
		Disks: []Disk{{"/dev/vda", 1, 2, 3, 4}}}
}

var machine = Machine{ID: "m", SystemUUID: "u", BootID: "b", Kernel: "6.1", OS: "Board OS", Cores: 4, Physical: 2, Sockets: 1, Memory: 1 << 30}

func parse(t *testing.T, text io.Reader) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestContainers checks that Prometheus' parser accepts the page. Every metric family must have the described labels.
func TestContainers(t *testing.T) {
	root := fullSubject("")
	root.Group.Kind, root.Group.Path, root.Devices = sample.Root, "/", []disk.Device{{Name: "/dev/vda", SectorsRead: 2}}
	root.Container, root.Pod, root.Namespace, root.Image, root.Name = "", "", "", "", ""
	var p page
	writeContainers(&p, machine, []Subject{root, fullSubject("c1")}, nil, func(n string) string { return "/dev/" + n })
	got := parse(t, bytes.NewReader(p.b))
	for _, d := range Families() {
		f := got[d.Name]
		if d.Name == "machine_swap_bytes" && f.GetMetric()[0].GetGauge().GetValue() != 0 {
			t.Error("the swap size is not zero")
		}
		if f == nil {
			t.Errorf("%s is missing", d.Name)
			continue
		}
		delete(got, d.Name)
		kind := map[Kind]dto.MetricType{Gauge: dto.MetricType_GAUGE, Counter: dto.MetricType_COUNTER}[d.Kind]
		if f.GetType() != kind {
			t.Errorf("%s is a %s, want a %s", d.Name, f.GetType(), kind)
		}
		for _, m := range f.Metric {
			has := map[string]bool{}
			for _, l := range m.Label {
				has[l.GetName()] = true
			}
			for _, l := range d.Labels {
				if !has[l] {
					t.Errorf("%s lacks the label %s", d.Name, l)
				}
			}
			if len(has) != len(d.Labels) {
				t.Errorf("%s has the labels %v, want %v", d.Name, has, d.Labels)
			}
		}
	}
	for name := range got {
		t.Errorf("%s is not described", name)
	}
	text := string(p.b)
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="main",id="/kubepods/poda/c1",image="in\"side\\",name="c1",namespace="default",pod="web",cpu="total"} 1.5 1000500`,
		`container_fs_reads_bytes_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/vda"} 1024 1000500`,
		`pod="web",device="/dev/254:0",major="254",minor="0",operation="Write"} 6 1000500`, `container_start_time_seconds{container="main",id="/kubepods/poda/c1",image="in\"side\\",name="c1",namespace="default",pod="web"} 900` + "\n",
		`container_cpu_cfs_throttled_seconds_total{container="main",id="/kubepods/poda/c1",image="in\"side\\",name="c1",namespace="default",pod="web"} 2.5 1000500`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without %s in\n%s", want, text)
		}
	}
}

// TestNothing checks that a container without a CPU limit has no throttling metrics. A family without samples must be omitted, and an
// error must be reported.
func TestNothing(t *testing.T) {
	s := fullSubject("c1")
	s.Quota, s.Network, s.Open = 0, nil, process.Files{}
	var p page
	writeContainers(&p, Machine{}, []Subject{s}, errors.New("refused"), func(n string) string { return n })
	for name := range parse(t, bytes.NewReader(p.b)) {
		if strings.Contains(name, "cfs") || strings.Contains(name, "network") || name == "container_spec_cpu_quota" ||
			name == "container_sockets" || name == "machine_memory_bytes" {
			t.Errorf("%s is there", name)
		}
	}
	if !bytes.Contains(p.b, []byte("container_scrape_error 1\n")) {
		t.Error("the error is not reported")
	}
}

// TestSandbox checks that only the network metrics of a pod have the name of the sandbox. Other metrics have no samples for sandboxes.
func TestSandbox(t *testing.T) {
	pod, other := fullSubject("pod"), fullSubject("other")
	for _, s := range []*Subject{&pod, &other} {
		s.Kind, s.Container, s.Name, s.Image = sample.Pod, "", "", ""
	}
	pod.Sandbox = "s1"
	other.Sandbox, other.Network = "s2", nil // a pod with the host's network
	alone := fullSubject("c2")
	alone.Sandbox = "s3"
	var p page
	writeContainers(&p, machine, []Subject{other, fullSubject("c1"), pod, alone}, nil, func(n string) string { return n })
	lines := map[string]int{}
	for name, f := range parse(t, bytes.NewReader(p.b)) {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "name" {
					lines[fmt.Sprint(strings.HasPrefix(name, "container_network_"), " ", l.GetValue())]++
				}
			}
		}
	}
	const network = 8
	each := lines["false c1"] // the number of its metrics without network metrics
	for of, want := range map[string]int{"true c1": network, "true s1": network, "true s3": network, "true ": 0, "true c2": 0, "true s2": 0, "false ": 2*each - 4, "false c2": each, "false s1": 0, "false s2": 0, "false s3": 0} {
		if lines[of] != want || each == 0 {
			t.Errorf("%d lines of %q, want %d", lines[of], of, want)
		}
	}
}

// TestCompressed checks that a client that accepts gzip gets the same text compressed.
func TestCompressed(t *testing.T) {
	get := func(accept string) []byte {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		ServeContainers(w, r, machine, []Subject{fullSubject("c1")}, nil)
		if accept != "gzip" {
			return w.Body.Bytes()
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if plain := get("gzip;q=0, br"); len(plain) == 0 || !bytes.Equal(plain, get("gzip")) {
		t.Error("they differ")
	}
}

type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) WriteHeader(int)             {}
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkContainers writes the page of 100 pods with one container each.
func BenchmarkContainers(b *testing.B) {
	var all []Subject
	for i := range 100 {
		c, pod := fullSubject(fmt.Sprintf("%064d", i)), fullSubject("pod")
		pod.Group.Kind = sample.Pod
		all = append(all, pod, c)
	}
	b.ReportAllocs()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for b.Loop() {
		ServeContainers(nowhere{}, r, machine, all, nil)
	}
}
