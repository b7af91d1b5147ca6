package backups

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/ptytest"
)

// terminal returns a terminal, and a function that closes it and returns what was written to it.
func terminal(t *testing.T) (*os.File, func() string) {
	t.Helper()
	ours, theirs := ptytest.Open(t)
	return theirs, func() string {
		theirs.Close()
		text, _ := io.ReadAll(ours) // ends with an error when the other side is closed
		return string(text)
	}
}

// TestProgress checks that each stage is printed if the standard error is a terminal, unless -q is set. The standard output is always the
// same.
func TestProgress(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	file := filepath.Join(filepath.Dir(d.key), "f")
	for _, quiet := range []bool{false, true} {
		out := map[bool]string{}
		for _, onTerminal := range []bool{false, true} {
			var said func() string
			d.errs = nil
			if onTerminal {
				d.errs, said = terminal(t)
			}
			more := []string{}
			if quiet {
				more = append(more, "-q")
			}
			text := d.run(0, "backup", append(more, file, "--to="+d.to)...) + d.run(0, "backup", append(more, "--verify", file, "--key="+d.key)...)
			text += d.run(0, "restore", append(more, file, "--key="+d.key, "--set-aside", "--dry-run")...)
			out[onTerminal], _, _ = strings.Cut(text, "made:") // a time follows
			if !onTerminal {
				continue
			}
			lines := strings.Count(said(), "\n")
			if want := map[bool]int{false: 5, true: 0}[quiet]; lines != want {
				t.Errorf("quiet %v: %d lines", quiet, lines)
			}
		}
		if out[false] != out[true] || out[false] == "" {
			t.Errorf("%q, on a terminal %q", out[false], out[true])
		}
	}
	var said func() string
	d.errs, said = terminal(t)
	piped := d.run(0, "backup", "-", "--to="+d.to)
	d.in = strings.NewReader(piped)
	d.run(0, "backup", "--verify", "-", "--key="+d.key)
	d.in = strings.NewReader(piped[:len(piped)-10])
	d.run(1, "backup", "--verify", "-", "--key="+d.key)
	text := said()
	for _, want := range []string{"writing the standard output ...", "reading the standard input ...", "islet: backup: the standard input: "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q, want %s", text, want)
		}
	}
	var to bytes.Buffer
	large := &counted{ReadCloser: io.NopCloser(io.LimitReader(zeros{}, 2*progressStep+1)), progress: progress{&to}, what: "reading\nx"}
	if n, err := io.Copy(io.Discard, large); n != 2*progressStep+1 || err != nil || strings.Count(to.String(), "\n") != 2 ||
		!strings.Contains(to.String(), "65536 KiB") {
		t.Errorf("%d, %v, %q", n, err, to.String())
	}
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
