package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	barWidth   = 30
	redrawTime = 100 * time.Millisecond
)

// A progress shows how something goes on standard error: a bar that is redrawn
// on a terminal, else a line whenever the status changes.
type progress struct {
	w        io.Writer // nil: quiet
	terminal bool
	mu       sync.Mutex
	order    []string
	items    map[string]item
	drawn    int // lines on the screen
	at       time.Time
}

type item struct {
	status         string
	current, total int64
}

func (t *tool) progress(quiet bool) *progress {
	p := &progress{w: t.Stderr, terminal: isTerminal(t.Stderr), items: map[string]item{}}
	if quiet {
		p.w = nil
	}
	return p
}

// update tells how far ref is. It may be called from any goroutine.
func (p *progress) update(ref, status string, current, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.items[ref]
	if !known {
		p.order = append(p.order, ref)
	}
	if total == 0 {
		total = old.total // the agent does not know the size of what it is sent
	}
	p.items[ref] = item{status, current, total}
	changed := !known || old.status != status
	switch {
	case p.w == nil:
	case !p.terminal && changed:
		fmt.Fprintf(p.w, "%s: %s\n", printable(ref), printable(status))
	case p.terminal && (changed || time.Since(p.at) > redrawTime):
		p.draw()
	}
}

func (p *progress) draw() {
	p.at = time.Now()
	p.erase()
	for _, ref := range p.order {
		i := p.items[ref]
		line := fmt.Sprintf("%-12s", printable(i.status))
		if i.total > 0 {
			full := int(min(i.current, i.total) * barWidth / i.total)
			line += fmt.Sprintf(" [%s%s] %8s of %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), size(i.current), size(i.total))
		} else if i.current > 0 {
			line += " " + size(i.current)
		}
		fmt.Fprintf(p.w, "%s  %s\n", line, shorten(printable(ref), 60))
		p.drawn++
	}
}

// erase takes back what is drawn.
func (p *progress) erase() {
	if p.drawn > 0 {
		fmt.Fprintf(p.w, "\x1b[%dA\x1b[J", p.drawn)
	}
	p.drawn = 0
}

// clear removes the bars.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
}

// shorten keeps the end of a long name, which tells more than its beginning.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return "..." + string(r[len(r)-n+3:])
}

// A counter shows how much of an archive has been sent.
type counter struct {
	r     io.Reader
	bar   *progress
	name  string
	sent  int64
	total int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.sent += int64(n)
	c.bar.update(c.name, "reading", c.sent, c.total)
	return n, err
}
