package backups

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/islet-edge/islet/internal/printable"
)

// A progress tells a person at a terminal what a command does, with a line for each stage.
type progress struct {
	w io.Writer // nil if nothing is printed
}

// progress returns the progress of a command. It prints nothing if the standard error is not a terminal.
func (env Env) progress(o *options) progress {
	if f, ok := env.Stderr.(*os.File); ok && !o.quiet && term.IsTerminal(int(f.Fd())) {
		return progress{f}
	}
	return progress{}
}

// stage prints that a stage begins. The number of bytes is 0 if it is unknown.
func (p progress) stage(what string, bytes int64) {
	if p.w == nil {
		return
	}
	if bytes > 0 {
		what = fmt.Sprintf("%s (%d KiB)", what, (bytes+1023)>>10)
	}
	fmt.Fprintln(p.w, printable.Line(what)+" ...")
}

// follow prints that a stage begins. It returns an archive that prints how many bytes of it were read. The parameter size is the size of
// the archive, or 0 if it is unknown.
func (p progress) follow(archive io.ReadCloser, what string, size int64) io.ReadCloser {
	p.stage(what, size)
	return &counted{ReadCloser: archive, progress: p, what: what}
}

// progressStep is the number of bytes after which a stage that reads is printed again.
const progressStep = 32 << 20

// A counted archive prints how many bytes of it were read.
type counted struct {
	io.ReadCloser
	progress
	what string
	n    int64
}

// Read implements io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	before := c.n
	if c.n += int64(n); c.n/progressStep > before/progressStep {
		c.stage(c.what, c.n)
	}
	return n, err
}
