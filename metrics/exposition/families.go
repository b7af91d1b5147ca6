package exposition

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// writeSamples writes samples and the families of the Prometheus library, sorted by name. The families must already be sorted.
func writeSamples(p *page, samples []Sample, families []*dto.MetricFamily) {
	order := make([]int, len(samples))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(samples[a].Name, samples[b].Name) })
	seen := newLabelSet()
	for i, at := range order {
		s := &samples[at]
		if i == 0 || samples[order[i-1]].Name != s.Name {
			families = p.writeFamilies(families, s.Name)
			p.beginFamily(s.Name, s.Help, s.Kind)
			seen.clearHashes()
		}
		p.stamp = timestampText(s.At)
		p.writeOnce(seen, s.Value, s.Labels...)
		if i+1 == len(order) || samples[order[i+1]].Name != s.Name {
			p.endFamily()
			if len(families) > 0 && families[0].GetName() == s.Name { // the family and the sample have the same name
				p.writeRest(families[0], seen)
				families = families[1:]
			}
		}
	}
	p.writeFamilies(families, "")
}

// writeFamilies writes the families whose names come before the given name, or all families if the
// given name is empty. It returns the remaining families.
func (p *page) writeFamilies(all []*dto.MetricFamily, before string) []*dto.MetricFamily {
	for len(all) > 0 && (before == "" || all[0].GetName() < before) {
		p.writeFamily(all[0])
		p.flushFull()
		all = all[1:]
	}
	return all
}

// writeFamily writes a family with the Prometheus library, which supports all types of metrics. It does not check the labels, because the
// library accepts only valid UTF-8. If the family cannot be written, writeFamily omits it.
func (p *page) writeFamily(f *dto.MetricFamily) {
	begun := len(p.b)
	if _, err := expfmt.MetricFamilyToText(p, f); err != nil {
		p.b = p.b[:begun]
	}
}

// writeRest writes the metrics of a family. It omits each metric whose labels are already on the page.
func (p *page) writeRest(f *dto.MetricFamily, seen *labelSet) {
	left := &dto.MetricFamily{Name: f.Name, Type: f.Type}
	var text []byte
	for _, m := range f.Metric {
		var pairs []string
		for _, l := range m.Label {
			pairs = append(pairs, l.GetName(), l.GetValue())
		}
		if text = appendLabels(text[:0], pairs...); seen.add(text) {
			left.Metric = append(left.Metric, m)
		}
	}
	begun := len(p.b)
	p.writeFamily(left)
	header := bytes.IndexByte(p.b[begun:], '\n') + 1 // the line with the type of the metric
	p.b = append(p.b[:begun], p.b[begun+header:]...)
	p.flushFull()
}

// Write implements io.Writer. A page also has the methods WriteString, WriteByte and WriteRune. Without them, the Prometheus library would
// allocate a buffer.
func (p *page) Write(b []byte) (int, error) {
	p.b = append(p.b, b...)
	return len(b), nil
}

// WriteString implements io.StringWriter.
func (p *page) WriteString(s string) (int, error) {
	p.b = append(p.b, s...)
	return len(s), nil
}

// WriteByte implements io.ByteWriter.
func (p *page) WriteByte(c byte) error {
	p.b = append(p.b, c)
	return nil
}

// WriteRune writes a character in UTF-8.
func (p *page) WriteRune(r rune) (int, error) {
	n := len(p.b)
	p.b = utf8.AppendRune(p.b, r)
	return len(p.b) - n, nil
}
