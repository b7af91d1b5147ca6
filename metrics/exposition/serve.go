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

// A Sample is one figure.
type Sample struct {
	Name, Help string
	Kind       Kind
	Labels     []string // name, value, name, value ...; the same names for all of one Name
	Value      float64
	At         time.Time // when it was measured; zero: now
}

// Kind says how a figure moves.
type Kind int

// A Gauge goes up and down, a Counter only up until the process ends.
const (
	Gauge Kind = iota
	Counter
)

// Serve answers a scrape with samples of now and with what is counted elsewhere.
// Of samples with the same name and labels the first counts.
func Serve(w http.ResponseWriter, r *http.Request, samples []Sample, counted ...prometheus.Gatherer) {
	if expfmt.Negotiate(r.Header).FormatType() == expfmt.TypeTextPlain {
		var families []*dto.MetricFamily
		if len(counted) > 0 {
			families, _ = gathered(counted).Gather() // what could not be counted is not there
		}
		respond(w, r, func(p *page) { writeSamples(p, samples, families) })
		return
	}
	now := prometheus.NewRegistry()
	now.Register(constant(samples)) // alone: it meets nothing
	from := append(prometheus.Gatherers{now}, counted...)
	serve := promhttp.HandlerFor(from, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, DisableCompression: true})
	if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
		serve.ServeHTTP(w, r)
		return
	}
	z := pack(w)
	defer z.end()
	serve.ServeHTTP(compressed{w, z}, r)
}

// gathered is all that was counted; one alone is not merged with anything.
func gathered(counted []prometheus.Gatherer) prometheus.Gatherer {
	if len(counted) == 1 {
		return counted[0]
	}
	return prometheus.Gatherers(counted)
}

// compressed is an answer that is packed on its way.
type compressed struct {
	http.ResponseWriter
	to io.Writer
}

// Write implements http.ResponseWriter.
func (c compressed) Write(b []byte) (int, error) { return c.to.Write(b) }

// seen are the labels that a family has had, by hashes that nobody can foresee.
type seen struct {
	had  map[uint64]bool
	seed maphash.Seed
}

func newSeen() *seen { return &seen{map[uint64]bool{}, maphash.MakeSeed()} }

func (s *seen) forget() { clear(s.had) }

// first says whether a family has not had these labels, of which text is what is in braces. It has
// from now on.
func (s *seen) first(text []byte) bool {
	of := maphash.Bytes(s.seed, text)
	had := s.had[of]
	s.had[of] = true
	return !had
}

// once writes a line, unless the family has had one with these labels: two pods may have the
// same name while one of them ends.
func (p *page) once(s *seen, v float64, labels ...string) {
	begun := len(p.b)
	if !s.first(p.line(v, "", labels...)) {
		p.b = p.b[:begun]
	}
}

// A Process gathers what is counted in this process and what Go has to say of it: go_*.
type Process struct {
	*prometheus.Registry
	started time.Time
}

// NewProcess is called once; started is when all that is counted began at zero.
func NewProcess(started time.Time, counted ...prometheus.Collector) (*Process, error) {
	all := append(together{collectors.NewGoCollector()}, counted...)
	alone := prometheus.NewRegistry() // refuses a name that two have
	for _, c := range all {
		if err := alone.Register(c); err != nil {
			return nil, err
		}
	}
	p := &Process{prometheus.NewRegistry(), started}
	return p, p.Register(all)
}

// together is one collector of many. A registry starts a goroutine for each that it has, and gives
// way to them: to begin and end those costs more than what most of them collect.
type together []prometheus.Collector

// Describe implements prometheus.Collector.
func (t together) Describe(to chan<- *prometheus.Desc) {
	for _, c := range t {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (t together) Collect(to chan<- prometheus.Metric) {
	for _, c := range t {
		c.Collect(to)
	}
}

// Samples are what the kernel has to say of this process, under the names that every program
// with Prometheus' Go client has for them.
func (p *Process) Samples() []Sample {
	self := process.ReadSelf()
	return []Sample{
		{Name: "process_cpu_seconds_total", Help: "Total user and system CPU time spent in seconds.", Kind: Counter, Value: self.CPU.Seconds()},
		{Name: "process_open_fds", Help: "Number of open file descriptors.", Value: float64(self.Files)},
		{Name: "process_max_fds", Help: "Maximum number of open file descriptors.", Value: float64(self.MaxFiles)},
		{Name: "process_virtual_memory_bytes", Help: "Virtual memory size in bytes.", Value: float64(self.Virtual)},
		{Name: "process_virtual_memory_max_bytes", Help: "Maximum amount of virtual memory available in bytes.", Value: float64(self.MaxVirtual)},
		{Name: "process_resident_memory_bytes", Help: "Resident memory size in bytes.", Value: float64(self.Resident)},
		{Name: "process_network_receive_bytes_total", Help: "Number of bytes received by the process over the network.", Kind: Counter, Value: float64(self.Received)},
		{Name: "process_network_transmit_bytes_total", Help: "Number of bytes sent by the process over the network.", Kind: Counter, Value: float64(self.Sent)},
		StartTime(p.started),
	}
}

// StartTime is when counters began at zero. The kernel has an earlier time for a process that has
// replaced its program in place, as an agent does with another version of itself: with that a
// Prometheus would take the counters for those of the program before.
func StartTime(t time.Time) Sample {
	return Sample{Name: "process_start_time_seconds", Help: "Start time of the process since unix epoch in seconds.", Value: float64(t.UnixMilli()) / 1000}
}

// constant is a collector of figures that are there already. It describes
// nothing, since what there is differs from scrape to scrape.
type constant []Sample

// Describe implements prometheus.Collector.
func (constant) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c constant) Collect(to chan<- prometheus.Metric) {
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
