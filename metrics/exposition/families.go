package exposition

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// writeSamples writes samples, those of one name together, and families, which are in the
// order of their names, among them.
func writeSamples(p *page, samples []Sample, families []*dto.MetricFamily) {
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
			families = p.families(families, s.Name)
			p.begin(s.Name, s.Help, s.Kind)
			seen.forget()
		}
		p.stamp = stamped(s.At)
		p.once(seen, s.Value, s.Labels...)
		if last := i+1 == len(order) || samples[order[i+1]].Name != s.Name; last && len(families) > 0 && families[0].GetName() == s.Name {
			for _, m := range families[0].Metric { // counted elsewhere too
				p.metric(families[0].GetName(), m, seen)
			}
			families = families[1:]
		}
	}
	p.end()
	p.families(families, "")
}

// families writes those whose names come before one, or all, and gives the rest.
func (p *page) families(all []*dto.MetricFamily, before string) []*dto.MetricFamily {
	for len(all) > 0 && (before == "" || all[0].GetName() < before) {
		f := all[0]
		p.begin(f.GetName(), f.GetHelp(), kindOf(f.GetType()))
		for _, m := range f.Metric {
			p.metric(f.GetName(), m, nil)
		}
		p.end()
		all = all[1:]
	}
	return all
}

func kindOf(t dto.MetricType) Kind {
	switch t {
	case dto.MetricType_COUNTER:
		return Counter
	case dto.MetricType_GAUGE:
		return Gauge
	case dto.MetricType_SUMMARY:
		return summary
	case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		return histogram
	}
	return untyped
}

// metric writes the lines of one of a family; with seen only those that it has not had.
// https://prometheus.io/docs/instrumenting/exposition_formats/#histograms-and-summaries
func (p *page) metric(name string, m *dto.Metric, seen *seen) {
	p.stamp = ""
	if m.TimestampMs != nil {
		p.stamp = " " + strconv.FormatInt(*m.TimestampMs, 10)
	}
	var room [16]string
	labels := room[:0]
	for _, l := range m.Label {
		labels = append(labels, l.GetName(), l.GetValue())
	}
	one := func(v float64) {
		if seen != nil {
			p.once(seen, v, labels...)
		} else {
			p.line(v, "", labels...)
		}
	}
	switch {
	case m.Counter != nil:
		one(m.Counter.GetValue())
	case m.Gauge != nil:
		one(m.Gauge.GetValue())
	case m.Untyped != nil:
		one(m.Untyped.GetValue())
	case m.Summary != nil:
		for _, q := range m.Summary.Quantile {
			p.line(q.GetValue(), "", append(labels, "quantile", float(q.GetQuantile()))...)
		}
		p.total(name, m.Summary.GetSampleSum(), float64(m.Summary.GetSampleCount()), labels)
	case m.Histogram != nil:
		p.histogram(name, m.Histogram, labels)
	}
}

func (p *page) histogram(name string, h *dto.Histogram, labels []string) {
	all := cmp.Or(h.GetSampleCountFloat(), float64(h.GetSampleCount()))
	p.family = name + "_bucket"
	bounded := false // the last bucket has a bound
	for _, b := range h.Bucket {
		bounded = !math.IsInf(b.GetUpperBound(), 1)
		p.line(cmp.Or(b.GetCumulativeCountFloat(), float64(b.GetCumulativeCount())), "", append(labels, "le", float(b.GetUpperBound()))...)
	}
	if bounded || len(h.Bucket) == 0 {
		p.line(all, "", append(labels, "le", "+Inf")...)
	}
	p.total(name, h.GetSampleSum(), all, labels)
}

// total writes the last lines of a summary or a histogram.
func (p *page) total(name string, sum, count float64, labels []string) {
	p.family = name + "_sum"
	p.line(sum, "", labels...)
	p.family = name + "_count"
	p.line(count, "", labels...)
	p.family = name
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
