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

// A page writes text in the format of Prometheus. It does not use the Prometheus library, which allocates an object for each line. A page
// of containers has very many lines, so writing it with the library would take longer than the measurement. See
// https://prometheus.io/docs/instrumenting/exposition_formats/.
type page struct {
	out    io.Writer // nil if b is the whole page
	b      []byte
	blocks [][]byte // the common labels of the lines of each Subject
	family string   // name of the family that is being written
	stamp  string   // the timestamp for the end of the family's lines

	stampedAt int64 // the time for which stampedAs is the timestamp, in milliseconds since 1970
	stampedAs string

	familyStart int  // offset in b at which the current family begins
	hasLine     bool // true if the current family has a line
}

// These variables keep the buffer and the compressor of the last page for reuse.
var (
	sparePages   spareObject[page]
	sparePackers spareObject[packer]
)

// partSize is the number of bytes of a page that are buffered before they are sent.
const partSize = 32 << 10

// kindNames contains the names of the Kinds.
var kindNames = [...]string{Gauge: "gauge", Counter: "counter"}

// beginFamily writes the header of a family.
func (p *page) beginFamily(name, help string, k Kind) {
	p.family, p.familyStart = name, len(p.b)
	p.b = append(p.b, "# HELP "...)
	p.b = append(p.b, name...)
	p.b = append(p.b, ' ')
	p.b = append(p.b, escapeHelp.Replace(strings.ToValidUTF8(help, string(utf8.RuneError)))...)
	p.b = append(p.b, "\n# TYPE "...)
	p.b = append(p.b, name...)
	p.b = append(p.b, ' ')
	p.b = append(p.b, kindNames[k]...)
	p.b = append(p.b, '\n')
}

// endFamily completes a family. It removes the header of a family without lines.
func (p *page) endFamily() {
	if !p.hasLine {
		p.b = p.b[:p.familyStart]
	}
	p.hasLine = false
	p.flushFull()
}

// flushFull sends the buffered bytes if there are at least partSize of them.
func (p *page) flushFull() {
	if len(p.b) >= partSize {
		p.flush()
	}
}

// writeLine writes a line of the current family with a value, the labels of formatLabels, and the names and values of further labels. It
// returns the text between the braces, which is valid until the next write.
func (p *page) writeLine(v float64, labels string, more ...string) []byte {
	p.hasLine = true
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
		p.writeLabel(more[i], more[i+1])
	}
	ended := len(p.b)
	if ended > begun {
		p.b = append(p.b, '}')
	}
	p.b = append(p.b, ' ')
	p.writeNumber(v)
	p.b = append(p.b, p.stamp...)
	p.b = append(p.b, '\n')
	return p.b[begun:ended]
}

func (p *page) writeLabel(name, value string) {
	p.b = append(p.b, name...)
	p.b = append(p.b, '=', '"')
	p.b = appendEscaped(p.b, value)
	p.b = append(p.b, '"')
}

func (p *page) writeNumber(v float64) {
	if n := int64(v); float64(n) == v && n < 1<<53 && n > -1<<53 {
		p.b = strconv.AppendInt(p.b, n, 10)
	} else {
		p.b = strconv.AppendFloat(p.b, v, 'g', -1, 64)
	}
}

// writeEntry is like writeLine, but the labels are the block of a Subject. A positive duration is written as the value, in seconds.
func (p *page) writeEntry(block []byte, v float64, seconds time.Duration, more ...string) {
	p.hasLine = true
	p.b = append(append(p.b, p.family...), '{')
	p.b = append(p.b, block...)
	for i := 0; i+1 < len(more); i += 2 {
		p.b = append(p.b, ',')
		p.writeLabel(more[i], more[i+1])
	}
	p.b = append(p.b, '}', ' ')
	if seconds > 0 {
		p.b = appendSeconds(p.b, seconds)
	} else {
		p.writeNumber(v)
	}
	p.b = append(append(p.b, p.stamp...), '\n')
	p.flushFull()
}

// appendSeconds appends a positive duration in seconds with nanosecond precision.
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

// appendEscaped appends the value of a label. It replaces invalid UTF-8 with U+FFFD, because a scraper rejects a page with invalid UTF-8.
// Such a value can occur: a pod can create a network interface with any name.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c == '\\' || c == '\n' || c == '"' {
			return append(b, labelEscaper.Replace(strings.ToValidUTF8(s, string(utf8.RuneError)))...)
		}
	}
	return append(b, s...)
}

// timestampText returns the timestamp that ends a line, with a space before it. It returns "" for a zero time.
func timestampText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " " + strconv.FormatInt(t.UnixMilli(), 10)
}

// cachedTimestamp returns the same text as timestampText, and caches it. Most lines of a page have the same time.
func (p *page) cachedTimestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if at := t.UnixMilli(); at != p.stampedAt || p.stampedAs == "" {
		p.stampedAt, p.stampedAs = at, timestampText(t)
	}
	return p.stampedAs
}

var (
	labelEscaper = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
	escapeHelp   = strings.NewReplacer("\\", `\\`, "\n", `\n`)
)

// formatLabels returns the text between the braces of a line.
func formatLabels(pairs ...string) string { return string(appendLabels(nil, pairs...)) }

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

// sendPage sends a page, which the caller's function writes. It compresses the page if the client accepts gzip. It sends the page in parts,
// because the page may be larger than the free memory of a small machine. It reuses the memory of the previous page.
func sendPage(w http.ResponseWriter, r *http.Request, writePage func(*page)) {
	p := sparePages.get()
	defer func() {
		p.out = nil
		sparePages.put(p)
	}()
	*p = page{out: w, b: p.b[:0], blocks: p.blocks} // a new page with the buffers of the previous page
	if p.b == nil {
		p.b = make([]byte, 0, partSize+partSize/8)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		z := newPacker(w)
		defer z.endResponse()
		p.out = z
	}
	writePage(p)
	p.flush()
}

// A packer is a gzip writer that is reused for the next response.
type packer struct{ *gzip.Writer }

// newPacker returns a packer that compresses the response. The caller must end the response.
func newPacker(w http.ResponseWriter) *packer {
	w.Header().Set("Content-Encoding", "gzip")
	z := sparePackers.get()
	if z.Writer == nil {
		z.Writer, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	} else {
		z.Reset(w)
	}
	return z
}

// endResponse completes the response. It ignores errors, because an error means that the client has closed
// the connection.
func (z *packer) endResponse() {
	z.Close()
	z.Reset(nil)
	sparePackers.put(z)
}

// flush sends the buffered bytes. It ignores errors, because an error means that the client has closed the
// connection.
func (p *page) flush() {
	if p.out == nil {
		return
	}
	p.out.Write(p.b)
	p.b = p.b[:0]
}

// acceptsGzip reports whether a client accepts gzip, according to its header Accept-Encoding. A weight of
// zero means that the client does not accept gzip. See https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3.
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
