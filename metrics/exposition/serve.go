package exposition

import (
	"hash/maphash"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/islet-edge/islet/metrics/process"
)

// A Sample is one value of a metric.
type Sample struct {
	Name, Help string
	Kind       Kind
	Labels     []string // name, value, name, value and so on; samples with the same Name have the same label names
	Value      float64
	At         time.Time // time of the measurement; zero means now
}

// Kind is the type of a metric.
type Kind int

// A Gauge can go up and down. A Counter only increases until the process ends.
const (
	Gauge Kind = iota
	Counter
)

// Serve answers a scrape with the given samples and the metrics of the gatherers. If several samples have the same name and labels, it uses
// the first one.
func Serve(w http.ResponseWriter, r *http.Request, samples []Sample, counted ...prometheus.Gatherer) {
	if expfmt.Negotiate(r.Header).FormatType() == expfmt.TypeTextPlain {
		var families []*dto.MetricFamily
		if len(counted) > 0 {
			families, _ = combineGatherers(counted).Gather() // metrics with an error are omitted
		}
		sendPage(w, r, func(p *page) { writeSamples(p, samples, families) })
		return
	}
	now := prometheus.NewRegistry()
	now.Register(sampleCollector(samples)) // cannot fail, because the registry has no other collector
	from := append(prometheus.Gatherers{now}, counted...)
	serve := promhttp.HandlerFor(from, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, DisableCompression: true,
	})
	if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
		serve.ServeHTTP(w, r)
		return
	}
	z := newPacker(w)
	defer z.endResponse()
	serve.ServeHTTP(compressedWriter{w, z}, r)
}

// combineGatherers combines several gatherers into one. A single gatherer is returned as it is.
func combineGatherers(counted []prometheus.Gatherer) prometheus.Gatherer {
	if len(counted) == 1 {
		return counted[0]
	}
	return prometheus.Gatherers(counted)
}

// compressedWriter is an http.ResponseWriter that compresses the response.
type compressedWriter struct {
	http.ResponseWriter
	to io.Writer
}

// Write implements http.ResponseWriter.
func (c compressedWriter) Write(b []byte) (int, error) { return c.to.Write(b) }

// A labelSet detects lines with the same labels in a family. It contains hashes of the labels. The hashes have a random seed, so clients
// cannot cause collisions.
type labelSet struct {
	hashes map[uint64]bool
	seed   maphash.Seed
}

func newLabelSet() *labelSet { return &labelSet{map[uint64]bool{}, maphash.MakeSeed()} }

func (s *labelSet) clearHashes() { clear(s.hashes) }

// add stores the hash of a line's labels, which are the text between the braces. It returns true if the labels are new.
func (s *labelSet) add(text []byte) bool {
	hash := maphash.Bytes(s.seed, text)
	known := s.hashes[hash]
	s.hashes[hash] = true
	return !known
}

// writeOnce writes a line unless the family already has a line with these labels. Two pods may have the same
// name while one of them is terminating.
func (p *page) writeOnce(s *labelSet, v float64, labels ...string) {
	begun := len(p.b)
	if !s.add(p.writeLine(v, "", labels...)) {
		p.b = p.b[:begun]
	}
}

// A Process is a registry with the counters of this process and the metrics of the Go runtime (go_*).
type Process struct {
	*prometheus.Registry
	startTime time.Time
}

// NewProcess returns a Process that also gathers the given collectors. The caller passes the time at which all counters were zero.
// NewProcess must be called only once.
func NewProcess(started time.Time, counted ...prometheus.Collector) (*Process, error) {
	all := append(collectorList{collectors.NewGoCollector()}, counted...)
	alone := prometheus.NewRegistry() // used only to detect duplicate names
	for _, c := range all {
		if err := alone.Register(c); err != nil {
			return nil, err
		}
	}
	p := &Process{prometheus.NewRegistry(), started}
	return p, p.Register(all)
}

// collectorList combines many collectors into one. This saves time, because a registry starts a goroutine for each collector. The start of
// a goroutine takes longer than the work of most collectors.
type collectorList []prometheus.Collector

// Describe implements prometheus.Collector.
func (t collectorList) Describe(to chan<- *prometheus.Desc) {
	for _, c := range t {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (t collectorList) Collect(to chan<- prometheus.Metric) {
	for _, c := range t {
		c.Collect(to)
	}
}

// Samples returns the metrics of this process that come from the kernel. They have the same names as in the Go client of Prometheus.
func (p *Process) Samples() []Sample {
	self := process.ReadSelf()
	return []Sample{
		{
			Name: "process_cpu_seconds_total", Help: "Total user and system CPU time spent in seconds.",
			Kind: Counter, Value: self.CPU.Seconds(),
		},
		{Name: "process_open_fds", Help: "Number of open file descriptors.", Value: float64(self.Files)},
		{Name: "process_max_fds", Help: "Maximum number of open file descriptors.", Value: float64(self.MaxFiles)},
		{Name: "process_virtual_memory_bytes", Help: "Virtual memory size in bytes.", Value: float64(self.Virtual)},
		{
			Name: "process_virtual_memory_max_bytes", Help: "Maximum amount of virtual memory available in bytes.",
			Value: float64(self.MaxVirtual),
		},
		{Name: "process_resident_memory_bytes", Help: "Resident memory size in bytes.", Value: float64(self.Resident)},
		{
			Name: "process_network_receive_bytes_total", Help: "Number of bytes received by the process over the network.",
			Kind: Counter, Value: float64(self.Received),
		},
		{
			Name: "process_network_transmit_bytes_total", Help: "Number of bytes sent by the process over the network.",
			Kind: Counter, Value: float64(self.Sent),
		},
		StartTime(p.startTime),
	}
}

// StartTime returns a sample with the time at which all counters were zero. This can be later than the kernel's start time of the process,
// because for an update the agent replaces its program by exec. With the kernel's time, Prometheus would not notice that the counters were
// reset.
func StartTime(t time.Time) Sample {
	return Sample{
		Name: "process_start_time_seconds", Help: "Start time of the process since unix epoch in seconds.",
		Value: float64(t.UnixMilli()) / 1000,
	}
}

// sampleCollector is a prometheus.Collector that returns the given samples. Describe sends no description, because each scrape has other
// samples.
type sampleCollector []Sample

// Describe implements prometheus.Collector.
func (sampleCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c sampleCollector) Collect(to chan<- prometheus.Metric) {
	descs := map[string]*prometheus.Desc{}
	for _, s := range c {
		names, values := make([]string, 0, len(s.Labels)/2), make([]string, 0, len(s.Labels)/2)
		for i := 0; i+1 < len(s.Labels); i += 2 {
			names, values = append(names, s.Labels[i]), append(values, s.Labels[i+1])
		}
		desc := descs[s.Name]
		if desc == nil {
			desc = prometheus.NewDesc(s.Name, s.Help, names, nil)
			descs[s.Name] = desc
		}
		kind := prometheus.GaugeValue
		if s.Kind == Counter {
			kind = prometheus.CounterValue
		}
		m, err := prometheus.NewConstMetric(desc, kind, s.Value, values...)
		if err != nil {
			m = prometheus.NewInvalidMetric(desc, err)
		} else if !s.At.IsZero() {
			m = prometheus.NewMetricWithTimestamp(s.At, m)
		}
		to <- m
	}
}
