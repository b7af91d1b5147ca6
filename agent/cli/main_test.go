package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/cli/command"
)

// TestStuck checks that a signal ends a command that is blocked in a system call. In this test, the command opens a pipe without a writer.
func TestStuck(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a goroutine that still waits for the pipe must not outlive the test
		if fd, err := unix.Open(pipe, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			unix.Close(fd)
		}
	})
	for _, args := range [][]string{{"apply", pipe}, {"config", "apply", pipe}, {"images", "import", pipe}} {
		ctx, signal := context.WithCancel(t.Context())
		signal()
		var out, errw bytes.Buffer
		if code := Main(ctx, args, env(nil, strings.NewReader(""), &out, &errw)); code != command.ExitSignal {
			t.Errorf("%q: code %d: %s%s", args, code, out.String(), errw.String())
		}
	}
}
