package exposition

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A page is text in Prometheus' format, written by hand: a page of containers has so many
// lines that objects for each would cost more than to measure them.
// https://prometheus.io/docs/instrumenting/exposition_formats/
type page struct {
	out    io.Writer // nil: b is the whole
	b      []byte
	family string // whose lines are being written
	stamp  string // their time, as it ends a line
	begun  int    // where the family begins
	lined  bool   // it has a line
}

// pages are those that were written, for the next.
var pages = sync.Pool{New: func() any { return new(page) }}

// part is how much of a page is sent at once, but for a family that is larger.
const part = 96 << 10

// begin begins a family.
func (p *page) begin(name, help string, k Kind) {
	kind := "gauge"
	if k == Counter {
		kind = "counter"
	}
	p.family, p.begun = name, len(p.b)
	p.b = append(p.b, "# HELP "...)
	p.b = append(p.b, name...)
	p.b = append(p.b, ' ')
	p.b = append(p.b, help...)
	p.b = append(p.b, "\n# TYPE "...)
	p.b = append(p.b, name...)
	p.b = append(p.b, ' ')
	p.b = append(p.b, kind...)
	p.b = append(p.b, '\n')
}

// end ends a family; one without a line is not there.
func (p *page) end() {
	if !p.lined {
		p.b = p.b[:p.begun]
	}
	if p.lined = false; len(p.b) >= part {
		p.flush()
	}
}

// line writes one value; labels are such as labels made, more is names and values of others.
// It returns what is in braces, until the next.
func (p *page) line(v float64, labels string, more ...string) []byte {
	p.lined = true
	p.b = append(p.b, p.family...)
	begun := len(p.b)
	if len(labels)+len(more) > 0 {
		begun++
		p.b = append(p.b, '{')
	}
	p.b = append(p.b, labels...)
	for i := 0; i+1 < len(more); i += 2 {
		if len(labels) > 0 || i > 0 {
			p.b = append(p.b, ',')
		}
		p.b = append(p.b, more[i]...)
		p.b = append(p.b, '=', '"')
		p.b = appendEscaped(p.b, more[i+1])
		p.b = append(p.b, '"')
	}
	ended := len(p.b)
	if ended > begun {
		p.b = append(p.b, '}')
	}
	p.b = append(p.b, ' ')
	if n := int64(v); float64(n) == v && n < 1<<53 && n > -1<<53 {
		p.b = strconv.AppendInt(p.b, n, 10)
	} else {
		p.b = strconv.AppendFloat(p.b, v, 'g', -1, 64)
	}
	p.b = append(p.b, p.stamp...)
	p.b = append(p.b, '\n')
	return p.b[begun:ended]
}

func appendEscaped(b []byte, s string) []byte {
	if strings.ContainsAny(s, "\\\n\"") {
		s = escape.Replace(s)
	}
	return append(b, s...)
}

// stamped is the time that ends a line.
func stamped(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " " + strconv.FormatInt(t.UnixMilli(), 10)
}

var escape = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

// labels writes names and values once for many lines.
func labels(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i])
		b.WriteString(`="`)
		b.WriteString(escape.Replace(pairs[i+1]))
		b.WriteByte('"')
	}
	return b.String()
}

// respond sends the page that write writes, compressed if that is asked for, in parts: a
// page may be larger than what a small machine has to spare.
func respond(w http.ResponseWriter, r *http.Request, write func(*page)) {
	p := pages.Get().(*page)
	defer pages.Put(p)
	p.b, p.out = p.b[:0], w
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
		z := packers.Get().(*packer)
		defer packers.Put(z)
		z.begin(w)
		defer z.Close()
		p.out = z
	}
	write(p)
	p.flush()
}

// flush sends what there is. An error is a client that has gone, which the next one tells
// too.
func (p *page) flush() {
	if p.out != nil {
		p.out.Write(p.b)
		p.b = p.b[:0]
	}
}

func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" {
			return strings.TrimSpace(q) != "q=0"
		}
	}
	return false
}
