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

// A page is text in the format of Prometheus. It is written by hand, because a page of containers has very
// many lines, and allocating an object for each line would cost more than the measurement. See
// https://prometheus.io/docs/instrumenting/exposition_formats/.
type page struct {
	out    io.Writer // nil if b is the whole page
	b      []byte
	blocks [][]byte // the common labels of the lines of each Subject
	family string   // the family that is being written
	stamp  string   // the timestamp at the end of the family's lines

	stampedAt int64 // the time that was formatted last, in milliseconds since 1970
	stampedAs string

	begun int  // offset in b at which the family begins
	lined bool // true if the family has a line
}

// pages and packers keep the memory of the last page for reuse.
var (
	pages   spare[page]
	packers spare[packer]
)

// part is the number of bytes of a page that are buffered before they are sent.
const part = 32 << 10

// kinds contains the names of the Kinds.
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

// end ends a family. A family without lines is removed.
func (p *page) end() {
	if !p.lined {
		p.b = p.b[:p.begun]
	}
	p.lined = false
	p.part()
}

// part sends the buffered bytes if there are enough.
func (p *page) part() {
	if len(p.b) >= part {
		p.flush()
	}
}

// line writes one value. labels is a result of the function labels. more contains the names and values of
// further labels. It returns the content of the braces. The content is valid until the next write.
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

// writeEntry is like line, with the block of a Subject. If seconds is not 0, entry writes it and not v.
func (p *page) writeEntry(block []byte, v float64, seconds time.Duration, more ...string) {
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

// appendSeconds writes a positive duration in seconds with nanosecond precision.
func appendSeconds(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d/time.Second), 10)
	rest := d % time.Second
	if rest == 0 {
		return b
	}
	begun := len(b)
	b = strconv.AppendInt(b, int64(time.Second+rest), 10) // with the leading zeros
	b[begun] = '.'
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// appendEscaped writes the value of a label. Invalid UTF-8 is replaced with U+FFFD, because a scraper
// rejects the whole page for one such byte. The name of an interface that a pod has created may contain
// such bytes.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c == '\\' || c == '\n' || c == '"' {
			return append(b, escape.Replace(strings.ToValidUTF8(s, string(utf8.RuneError)))...)
		}
	}
	return append(b, s...)
}

// stampOf returns a time as a line's timestamp, with the end of the line.
func stampOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " " + strconv.FormatInt(t.UnixMilli(), 10)
}

// stamped is like stampOf, with a cache for the last time. A sample contains few different times.
func (p *page) stamped(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if at := t.UnixMilli(); at != p.stampedAt || p.stampedAs == "" {
		p.stampedAt, p.stampedAs = at, stampOf(t)
	}
	return p.stampedAs
}

var (
	escape     = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
	escapeHelp = strings.NewReplacer("\\", `\\`, "\n", `\n`)
)

// labels returns the content of a line's braces.
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

// respond sends a page. It calls write to produce the page, and compresses it if the client accepts gzip. It sends
// the page in parts, because a page may be larger than the free memory of a small machine. It reuses the memory of
// the previous page.
func respond(w http.ResponseWriter, r *http.Request, write func(*page)) {
	p := pages.get()
	defer func() {
		p.out = nil
		pages.put(p)
	}()
	*p = page{out: w, b: p.b[:0], blocks: p.blocks} // keeps only the memory of the previous page
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

// A packer is a gzip writer.
type packer struct{ *gzip.Writer }

// pack compresses the response until end is called.
func pack(w http.ResponseWriter) *packer {
	w.Header().Set("Content-Encoding", "gzip")
	z := packers.get()
	if z.Writer == nil {
		z.Writer, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	} else {
		z.Reset(w)
	}
	return z
}

// end completes the response. An error means that the client has closed the connection.
func (z *packer) end() {
	z.Close()
	z.Reset(nil)
	packers.put(z)
}

// flush sends the buffered bytes. An error means that the client has closed the connection. The next write
// returns the error, too.
func (p *page) flush() {
	if p.out == nil {
		return
	}
	p.out.Write(p.b)
	p.b = p.b[:0]
}

// acceptsGzip reports whether a client accepts gzip. A weight of zero means that the client refuses gzip. See
// https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3.
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
