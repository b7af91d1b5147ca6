package setup

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/hostcommand"
	"github.com/islet-edge/islet/internal/k3s"
)

// TestFailuresOnConsole checks that each failure is on the console once, however often the service repeats the command: wrong flags, a
// restore that the agent cannot complete, a mistake in the file, and a network card that is missing. After another failure or a success,
// the same failure is reported again.
func TestFailuresOnConsole(t *testing.T) {
	tty, console := terminal(t)
	w := &watched{t: t, tty: tty}
	told := teller{console, filepath.Join(t.TempDir(), "told")}
	b, restored := newBoard(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(restored, k3s.RestoreFile), nil, 0o600))
	apply := func(text string) func() error {
		return func() error {
			b.write(text)
			out, err := b.apply()
			return told.report(out, err, false, io.Discard)
		}
	}
	b.cards = nil
	wrongFlags := func() error { return (&Setup{}).run([]string{"--no-such"}, io.Discard, told) }
	restore := func() error { return (&Setup{}).run([]string{b.boot, "--state-dir=" + restored}, io.Discard, told) }
	failures := []struct {
		do   func() error
		code int
		want string
	}{
		{wrongFlags, hostcommand.ExitUsage, "setup: the flags of the agent: --no-such: "},
		{restore, ExitRefused, "islet restore was interrupted"},
		{apply(head + "nmae: x\n"), ExitRefused, "nmae: unknown field"},
		{apply(head + "name: k-{mac}\n"), ExitRepeat, "needs a network card"},
	}
	for range 2 {
		for _, f := range failures {
			for i := range 3 {
				err := f.do()
				if code := hostcommand.CodeOf(err); code != f.code {
					t.Errorf("%v: code %d, want %d", err, code, f.code)
				}
				if said := w.said(); strings.Contains(said, f.want) != (i == 0) || strings.Count(said, "\n") > 1 {
					t.Errorf("run %d: the console has %q, want %s", i, said, f.want)
				}
			}
		}
	}
	must(t, apply(head+"name: one\n")())
	if said := w.said(); !strings.Contains(said, "is in use: one has no cluster") {
		t.Errorf("%q", said)
	}
	for isNamed, want := range map[bool]string{true: "setup: " + b.file() + " is in use already\n", false: ""} {
		var stdout strings.Builder
		out, err := b.apply()
		if err := told.report(out, err, isNamed, &stdout); err != nil || stdout.String() != want || w.said() != "" {
			t.Errorf("again, named %v: %v, %q", isNamed, err, stdout.String())
		}
	}
	last := failures[2]
	for i, do := range []func() error{last.do, apply(head + "name: one\n"), last.do} {
		if err, said := do(), w.said(); (err != nil) != (i != 1) || strings.Contains(said, last.want) != (i != 1) {
			t.Errorf("step %d: %v, %q", i, err, said)
		}
	}
}
