package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
)

// TestWatched checks that islet top -w and islet status -w repeat their output until they are interrupted.
func TestWatched(t *testing.T) {
	n, _ := startNode(t)
	for _, args := range [][]string{{"status", "-w", "--interval=1ms"}, {"top", "-w", "--interval=1ms"}} {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		done := make(chan int, 1)
		go func() { done <- Main(ctx, args, env(n, nil, w, io.Discard)); w.Close() }()
		lines, times := bufio.NewScanner(r), 0
		for times < 3 && lines.Scan() {
			if strings.HasPrefix(lines.Text(), "Node:") || strings.HasPrefix(lines.Text(), "NAME") {
				times++
			}
		}
		cancel()
		r.Close()
		if code := <-done; times != 3 || code != command.ExitSignal {
			t.Errorf("%q: %d times, code %d", args, times, code)
		}
	}
}

func TestColours(t *testing.T) {
	n, _ := startNode(t)
	coloured := func(name, value string, args ...string) string {
		var out bytes.Buffer
		e := env(n, nil, &out, io.Discard)
		socket := e.Getenv
		e.Getenv = func(key string) string {
			if key == name {
				return value
			}
			return socket(key)
		}
		Main(t.Context(), args, e)
		return out.String()
	}
	for _, c := range []struct{ name, value string }{{"", ""}, {"NO_COLOR", "1"}, {"CLICOLOR_FORCE", "0"}} {
		if out := coloured(c.name, c.value, "pods"); strings.Contains(out, "\x1b") {
			t.Errorf("%s=%s: %q", c.name, c.value, out)
		}
	}
	out := coloured("CLICOLOR_FORCE", "1", "pods")
	if !strings.Contains(out, string(terminal.Red)+"CrashLoopBackOff"+terminal.EndColour) ||
		!strings.Contains(out, string(terminal.Green)+"Running"+terminal.EndColour) {
		t.Errorf("coloured: %q", out)
	}
	bare := strings.NewReplacer(string(terminal.Red), "", string(terminal.Green), "", terminal.EndColour, "").Replace(out)
	if want := run(t, n, "", "pods").Out; bare != want {
		t.Errorf("colours move columns: %q, want %q", bare, want)
	}
}
