package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

const (
	maxBarWidth  = 30 // maximum width of a progress bar
	minNameWidth = 16 // minimum width of a name; if the space is insufficient, the bar is shortened first
	redrawTime   = 100 * time.Millisecond
)

// A Progress writes the progress of operations to standard error. On a terminal it redraws bars. If the output is not a
// terminal, it prints a line for each change of the status.
type Progress struct {
	w      io.Writer                  // nil if no progress is shown
	screen func() (width, height int) // nil if w is not a terminal
	mu     sync.Mutex
	order  []string
	items  map[string]item
	drawn  int // number of lines that were drawn on the screen
	at     time.Time
}

type item struct {
	status         string
	current, total int64
}

// NewProgress returns the progress of a command. If quiet is true, it shows nothing.
func NewProgress(t *command.Tool, quiet bool) *Progress {
	p := &Progress{w: t.Stderr, screen: Screen(t, t.Stderr), items: map[string]item{}}
	if quiet {
		p.w = nil
	}
	return p
}

// UpdateItem shows the progress of an archive or image, whose name is ref. It may be called from any goroutine.
func (p *Progress) UpdateItem(ref, status string, current, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.items[ref]
	if !known {
		p.order = append(p.order, ref)
	}
	if total == 0 {
		total = old.total // the agent does not know the size of an upload
	}
	p.items[ref] = item{status, current, total}
	changed := !known || old.status != status
	switch {
	case p.w == nil:
	case p.screen == nil && changed:
		fmt.Fprintf(p.w, "%s: %s\n", printable.Line(ref), printable.Line(status))
	case p.screen != nil && (changed || time.Since(p.at) > redrawTime):
		p.drawBars()
	}
}

func (p *Progress) drawBars() {
	p.at = time.Now()
	p.eraseBars()
	width, height := p.screen()
	// Lines that have scrolled off the screen cannot be erased.
	for _, ref := range p.order[max(0, len(p.order)-max(1, height-1)):] {
		fmt.Fprintln(p.w, p.items[ref].formatRow(printable.Line(ref), width-1))
		p.drawn++
	}
}

// formatRow returns one row of at most width cells. The row contains the status, a bar, the number of bytes and the end
// of the name.
func (i item) formatRow(name string, width int) string {
	status, bytes := fmt.Sprintf("%-11s", printable.Line(i.status)), ""
	switch {
	case i.total > 0:
		bytes = fmt.Sprintf(" %8s of %-8s", api.FormatSize(i.current), api.FormatSize(i.total))
	case i.current > 0:
		bytes = fmt.Sprintf(" %8s", api.FormatSize(i.current))
	}
	left := width - TextWidth(status) - TextWidth(bytes) - 1
	bar := ""
	if cells := min(maxBarWidth, left-minNameWidth-3); i.total > 0 && cells > 4 {
		full := int(float64(min(i.current, i.total)) / float64(i.total) * float64(cells))
		bar = fmt.Sprintf(" [%s%s]", strings.Repeat("=", full), strings.Repeat(" ", cells-full))
	}
	return ShortenEnd(status+bar+bytes+" "+shorten(name, max(0, left-len(bar))), width)
}

// ShortenEnd cuts off the end of a text that is wider than width.
func ShortenEnd(s string, width int) string {
	r := []rune(strings.TrimRight(s, " "))
	for TextWidth(string(r)) > max(0, width) {
		r = r[:len(r)-1]
	}
	return string(r)
}

// eraseBars removes the drawn lines.
func (p *Progress) eraseBars() {
	if p.drawn > 0 {
		fmt.Fprintf(p.w, "\x1b[%dA\x1b[J", p.drawn)
	}
	p.drawn = 0
}

// ClearBars removes the bars.
func (p *Progress) ClearBars() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eraseBars()
}

// shorten removes the beginning of a long name. It keeps the end of the name, because the end is
// more specific.
func shorten(s string, n int) string {
	if TextWidth(s) <= n {
		return s
	}
	r := []rune(s)
	for len(r) > 0 && TextWidth(string(r))+3 > n {
		r = r[1:]
	}
	return "..."[:min(3, n)] + string(r)
}

// CountBytes returns the reader of an archive. The progress shows how many bytes of the archive have been read.
func (p *Progress) CountBytes(r io.Reader, name string, total int64) io.Reader {
	return &counter{r: r, bar: p, name: name, total: total}
}

// A counter is the reader of an archive whose progress is shown.
type counter struct {
	r     io.Reader
	bar   *Progress
	name  string
	sent  int64
	total int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.sent += int64(n)
	c.bar.UpdateItem(c.name, "reading", c.sent, c.total)
	return n, err
}
