package exposition

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
)

// A page is text in Prometheus' format, written by hand: a page of containers has so many
// lines that objects for each would cost more than to measure them.
// https://prometheus.io/docs/instrumenting/exposition_formats/
type page struct {
	out    io.Writer // nil: b is the whole
	b      []byte
	blocks [][]byte // what all lines of a Subject have between their braces
	family string   // whose lines are being written
	stamp  string   // their time, as it ends a line

	stampedAt int64 // the last time that was made a text, in milliseconds since 1970
	stampedAs string

	begun int  // where the family begins
	lined bool // it has a line
}

// pages and packers are for the next page.
var (
	pages   spare[page]
	packers spare[packer]
)

// part is how much of a page is made and sent at once.
const part = 32 << 10

// kinds are what a Kind is called.
var kinds = [...]string{Gauge: "gauge", Counter: "counter"}

// begin begins a family.
func (p *page) begin(name, help string, k Kind) {
	p.family, p.begun = name, len(p.b)
	p.b = append(p.b, "# HELP "...)
	p.b = append(p.b, name...)
	p.b = append(p.b, ' ')
	p.b = append(p.b, escapeHelp.Replace(strings.ToValidUTF8(help, string(utf8.RuneError)))...)
	p.b = append(p.b, "\n# TYPE "...)
	p.b = append(p.b, name...)
	p.b = append(p.b, ' ')
	p.b = append(p.b, kinds[k]...)
	p.b = append(p.b, '\n')
}

// end ends a family; one without a line is not there.
func (p *page) end() {
	if !p.lined {
		p.b = p.b[:p.begun]
	}
	p.lined = false
	p.part()
}

// part sends what there is if it is enough.
func (p *page) part() {
	if len(p.b) >= part {
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
		p.label(more[i], more[i+1])
	}
	ended := len(p.b)
	if ended > begun {
		p.b = append(p.b, '}')
	}
	p.b = append(p.b, ' ')
	p.number(v)
	p.b = append(p.b, p.stamp...)
	p.b = append(p.b, '\n')
	return p.b[begun:ended]
}

func (p *page) label(name, value string) {
	p.b = append(p.b, name...)
	p.b = append(p.b, '=', '"')
	p.b = appendEscaped(p.b, value)
	p.b = append(p.b, '"')
}

func (p *page) number(v float64) {
	if n := int64(v); float64(n) == v && n < 1<<53 && n > -1<<53 {
		p.b = strconv.AppendInt(p.b, n, 10)
	} else {
		p.b = strconv.AppendFloat(p.b, v, 'g', -1, 64)
	}
}

// entry is line with a Subject's block; of seconds v is how many thousand millionths there are.
func (p *page) entry(block []byte, v float64, seconds time.Duration, more ...string) {
	p.lined = true
	p.b = append(append(p.b, p.family...), '{')
	p.b = append(p.b, block...)
	for i := 0; i+1 < len(more); i += 2 {
		p.b = append(p.b, ',')
		p.label(more[i], more[i+1])
	}
	p.b = append(p.b, '}', ' ')
	if seconds > 0 {
		p.b = appendSeconds(p.b, seconds)
	} else {
		p.number(v)
	}
	p.b = append(append(p.b, p.stamp...), '\n')
	p.part()
}

// appendSeconds writes a time that is more than none, to the last thousand millionth.
func appendSeconds(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d/time.Second), 10)
	rest := d % time.Second
	if rest == 0 {
		return b
	}
	begun := len(b)
	b = strconv.AppendInt(b, int64(time.Second+rest), 10) // with all zeros that it begins with
	b[begun] = '.'
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// appendEscaped writes the value of a label. What is not UTF-8 in it, as the name of an interface
// that a pod made, becomes U+FFFD: whoever reads a page refuses all of it for one such byte.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c == '\\' || c == '\n' || c == '"' {
			return append(b, escape.Replace(strings.ToValidUTF8(s, string(utf8.RuneError)))...)
		}
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

// stamped is the same without another text for the same time: all of a sample have few.
func (p *page) stamped(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if at := t.UnixMilli(); at != p.stampedAt || p.stampedAs == "" {
		p.stampedAt, p.stampedAs = at, stamped(t)
	}
	return p.stampedAs
}

var (
	escape     = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
	escapeHelp = strings.NewReplacer("\\", `\\`, "\n", `\n`)
)

// labels are what is between the braces of a line.
func labels(pairs ...string) string { return string(appendLabels(nil, pairs...)) }

func appendLabels(b []byte, pairs ...string) []byte {
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, pairs[i]...), `="`...)
		b = append(appendEscaped(b, pairs[i+1]), '"')
	}
	return b
}

// respond sends the page that write writes, compressed if that is asked for, in parts: a
// page may be larger than what a small machine has to spare. The memory is from that of the
// page before.
func respond(w http.ResponseWriter, r *http.Request, write func(*page)) {
	p := pages.get()
	defer func() {
		p.out = nil
		pages.put(p)
	}()
	*p = page{out: w, b: p.b[:0], blocks: p.blocks} // nothing else of the page that it was before
	if p.b == nil {
		p.b = make([]byte, 0, part+part/8)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		z := pack(w)
		defer z.end()
		p.out = z
	}
	write(p)
	p.flush()
}

// A packer makes gzip.
type packer struct{ *gzip.Writer }

// pack compresses what is written to an answer, until end.
func pack(w http.ResponseWriter) *packer {
	w.Header().Set("Content-Encoding", "gzip")
	z := packers.get()
	if z.Writer == nil {
		z.Writer, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // which is a level
	} else {
		z.Reset(w)
	}
	return z
}

// end sends the end. An error is a client that has gone.
func (z *packer) end() {
	z.Close()
	z.Reset(nil)
	packers.put(z)
}

// flush sends what there is. An error is a client that has gone, which the next one tells
// too.
func (p *page) flush() {
	if p.out == nil {
		return
	}
	p.out.Write(p.b)
	p.b = p.b[:0]
}

// acceptsGzip reports whether who asks takes compressed pages: of weight zero he does not.
// https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		q, of, _ := strings.Cut(strings.TrimSpace(weight), "=")
		n, err := strconv.ParseFloat(of, 64)
		return !strings.EqualFold(q, "q") || err != nil || n > 0
	}
	return false
}
