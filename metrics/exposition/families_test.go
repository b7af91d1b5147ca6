package exposition

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"
)

// newFullRegistry returns a registry with a family of each kind.
func newFullRegistry(t *testing.T) *prometheus.Registry {
	t.Helper()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "b_total", Help: "a \\ and\na line"}, []string{"x", "y"})
	counter.WithLabelValues("1", "a \"\\\nb").Add(1e21)
	counter.WithLabelValues("2", "").Add(0.1)
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "c", Help: "odd"}, []string{"of"})
	for name, v := range map[string]float64{"nan": math.NaN(), "inf": math.Inf(1), "less": -1.5e-9} {
		gauge.WithLabelValues(name).Set(v)
	}
	histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "d_seconds", Help: "took", Buckets: []float64{.1, 5}}, []string{"of"})
	for _, v := range []float64{.05, 3, 100} {
		histogram.WithLabelValues("one").Observe(v)
	}
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "e", Help: "sizes", Objectives: map[float64]float64{.5: .1}})
	summary.Observe(7)
	at := prometheus.NewMetricWithTimestamp(time.UnixMilli(1234),
		prometheus.MustNewConstMetric(prometheus.NewDesc("f", "untyped", nil, nil), prometheus.UntypedValue, 3))
	r := prometheus.NewRegistry()
	r.MustRegister(counter, gauge, histogram, summary, one{at}, one{invalidMetric{at}})
	return r
}

type one struct{ prometheus.Metric }

func (o one) Describe(to chan<- *prometheus.Desc) { to <- o.Desc() }
func (o one) Collect(to chan<- prometheus.Metric) { to <- o.Metric }

// An invalidMetric is a Metric with a label that is not valid UTF-8.
type invalidMetric struct{ prometheus.Metric }

func (invalidMetric) Desc() *prometheus.Desc {
	return prometheus.NewDesc("g", "spoilt", []string{"x"}, nil)
}

func (s invalidMetric) Write(m *dto.Metric) error {
	err := s.Metric.Write(m)
	m.Label = []*dto.LabelPair{{Name: proto.String("x"), Value: proto.String("\xff")}}
	return err
}

// TestFamilies checks that gathered metric families have the format of the Prometheus library, and are sorted together with samples. A
// metric of any type is omitted if a label is not valid UTF-8.
func TestFamilies(t *testing.T) {
	r := newFullRegistry(t)
	families, err := r.Gather()
	if err == nil {
		t.Fatal("a label that is not UTF-8 is not an error")
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	want := parse(t, &text)
	w := httptest.NewRecorder()
	Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), []Sample{
		{Name: "z", Help: "last"}, {Name: "a", Help: "first", Value: 1}, {Name: "c", Help: "odd", Labels: []string{"of", "inf"}, Value: 5}, {Name: "c", Help: "odd", Labels: []string{"of", "new"}}}, r)
	page := w.Body.String()
	got := parse(t, w.Body)
	if len(got) != len(want)+2 || got["a"].GetMetric()[0].GetGauge().GetValue() != 1 || got["z"] == nil {
		t.Errorf("%d families, %d gathered:\n%s", len(got), len(want), page)
	}
	for name, f := range want {
		if name != "c" && !proto.Equal(got[name], f) {
			t.Errorf("%s is\n%v, want\n%v", name, got[name], f)
		}
	}
	for _, line := range []string{"c{of=\"inf\"} 5\nc{of=\"new\"} 0\n", "c{of=\"nan\"} NaN\n", "c{of=\"less\"} -1.5e-09\n", "b_total{x=\"1\",y=\"a \\\"\\\\\\nb\"} 1e+21\n"} {
		if !strings.Contains(page, line) {
			t.Errorf("without %q:\n%s", line, page)
		}
	}
	if n := strings.Count(page, "# TYPE c "); n != 1 || strings.Contains(page, "c{of=\"inf\"} +Inf") {
		t.Errorf("a family is there %d times:\n%s", n, page)
	}
}

// TestProcess checks that the metrics of this process have the names, types and help texts of Prometheus' client. Their values are
// similar, except for the given start time.
func TestProcess(t *testing.T) {
	const startTime = "process_start_time_seconds"
	p, err := NewProcess(time.UnixMilli(1_700_000_000_250))
	if err != nil {
		t.Fatal(err)
	}
	theirs := prometheus.NewRegistry()
	theirs.MustRegister(prometheus.NewProcessCollector(prometheus.ProcessCollectorOpts{}))
	families, err := theirs.Gather()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), p.Samples(), p)
	got := parse(t, w.Body)
	if got["go_goroutines"] == nil {
		t.Error("without go_goroutines")
	}
	for _, f := range families {
		mine := got[f.GetName()]
		if mine == nil || mine.GetType() != f.GetType() || mine.GetHelp() != f.GetHelp() {
			t.Errorf("%s is %v, want %v", f.GetName(), mine, f)
			continue
		}
		value := func(v float64, w float64) {
			if math.Abs(v-w) > math.Max(2, w/4) {
				t.Errorf("%s is %v, want about %v", f.GetName(), v, w)
			}
		}
		if f.GetName() == startTime {
			continue
		}
		if c := f.Metric[0].Counter; c != nil {
			value(mine.Metric[0].GetCounter().GetValue(), c.GetValue())
		} else {
			value(mine.Metric[0].GetGauge().GetValue(), f.Metric[0].GetGauge().GetValue())
		}
	}
	if v := got[startTime].GetMetric()[0].GetGauge().GetValue(); v != 1_700_000_000.25 {
		t.Errorf("it started at %v", v)
	}
}

// TestLeftOut checks that a family that the library cannot write adds no text to the page. A family whose metrics are all among the samples
// adds no text either.
func TestLeftOut(t *testing.T) {
	counter, gauge := dto.MetricType_COUNTER, dto.MetricType_GAUGE
	metric := func(of string) *dto.Metric {
		return &dto.Metric{Label: []*dto.LabelPair{{Name: proto.String("of"), Value: &of}}, Gauge: &dto.Gauge{Value: proto.Float64(2)}}
	}
	var p page
	writeSamples(&p, []Sample{{Name: "b", Help: "both", Labels: []string{"of", "x"}, Value: 1}}, []*dto.MetricFamily{
		{Name: proto.String("a"), Type: &counter, Metric: []*dto.Metric{metric("x")}},
		{Name: proto.String("b"), Type: &gauge, Metric: []*dto.Metric{metric("x")}},
		{Name: proto.String("c"), Type: &gauge, Metric: []*dto.Metric{metric("x")}}})
	const want = "# HELP b both\n# TYPE b gauge\nb{of=\"x\"} 1\n# TYPE c gauge\nc{of=\"x\"} 2\n"
	if string(p.b) != want {
		t.Errorf("the page is %q, want %q", p.b, want)
	}
}

// TestProcessOfMany checks that all counters are served, also the counters of collectors without descriptions. A name that two collectors
// use must be rejected.
func TestProcessOfMany(t *testing.T) {
	counter := func(name string) prometheus.Collector {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "counts"})
	}
	p, err := NewProcess(time.Now(), counter("a_total"), sampleCollector{{Name: "b", Help: "undescribed", Value: 1}}, counter("c_total"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		families, err := p.Gather()
		names := map[string]bool{}
		for _, f := range families {
			names[f.GetName()] = true
		}
		if err != nil || !names["a_total"] || !names["b"] || !names["c_total"] || !names["go_goroutines"] {
			t.Errorf("%v, %v", names, err)
		}
	}
	if _, err := NewProcess(time.Now(), counter("a_total"), counter("a_total")); err == nil {
		t.Error("two have one name")
	}
}

// BenchmarkCounted measures how long the library takes to gather a page with the histograms of a node.
func BenchmarkCounted(b *testing.B) {
	r := prometheus.NewRegistry()
	for _, name := range []string{"kubelet_runtime_operations_duration_seconds", "kubelet_http_requests_duration_seconds", "kubelet_pod_worker_duration_seconds"} {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: "how long it took", Buckets: prometheus.DefBuckets}, []string{"operation_type", "server_type"})
		for _, of := range []string{"create_container", "start_container", "status", "run_podsandbox", "image_status", "list_containers", "remove_container"} {
			h.WithLabelValues(of, "readwrite").Observe(.2)
		}
		r.MustRegister(h)
	}
	for i := range 60 {
		r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: fmt.Sprint("kubelet_figure_", i), Help: "a figure of this node that moves"}))
	}
	q := httptest.NewRequest(http.MethodGet, "/", nil)
	q.Header.Set("Accept-Encoding", "gzip")
	b.Run("gather", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Gather(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Serve(nowhere{}, q, nil, r)
		}
	})
}
