package exposition

import (
	"bufio"
	"hash/maphash"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
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
	if len(counted) == 0 && expfmt.Negotiate(r.Header).FormatType() == expfmt.TypeTextPlain {
		respond(w, r, func(p *page) { writeSamples(p, samples) })
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
	w.Header().Set("Content-Encoding", "gzip")
	z := packers.Get().(*packer)
	defer packers.Put(z)
	z.begin(w)
	defer z.Close()
	b := bufio.NewWriterSize(z, part/4)
	defer b.Flush()
	serve.ServeHTTP(compressed{w, b}, r)
}

// compressed is an answer that is packed on its way.
type compressed struct {
	http.ResponseWriter
	to io.Writer
}

// Write implements http.ResponseWriter.
func (c compressed) Write(b []byte) (int, error) { return c.to.Write(b) }

// writeSamples writes samples, those of one name together.
func writeSamples(p *page, samples []Sample) {
	order := make([]int, len(samples))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(samples[a].Name, samples[b].Name) })
	seen := newSeen()
	for i, at := range order {
		s := &samples[at]
		if i == 0 || samples[order[i-1]].Name != s.Name {
			p.end()
			p.begin(s.Name, s.Help, s.Kind)
			seen.forget()
		}
		p.stamp = stamped(s.At)
		p.once(seen, s.Value, s.Labels...)
	}
	p.end()
}

// seen are the labels that a family has had, by hashes that nobody can foresee.
type seen struct {
	had  map[uint64]bool
	seed maphash.Seed
}

func newSeen() *seen { return &seen{map[uint64]bool{}, maphash.MakeSeed()} }

func (s *seen) forget() { clear(s.had) }

// once writes a line, unless the family has had one with these labels: two pods may have the
// same name while one of them ends.
func (p *page) once(s *seen, v float64, labels ...string) {
	begun := len(p.b)
	of := maphash.Bytes(s.seed, p.line(v, "", labels...))
	if s.had[of] {
		p.b = p.b[:begun]
		return
	}
	s.had[of] = true
}

// Process gathers counted and what there is to say of this process: go_* and
// process_*. It is made once.
func Process(counted ...prometheus.Collector) (prometheus.Gatherer, error) {
	registry := prometheus.NewRegistry()
	counted = append(counted, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, c := range counted {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return registry, nil
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
