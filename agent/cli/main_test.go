package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
		if code := Main(ctx, args, env(nil, strings.NewReader(""), &out, &errw)); code != exitSignal {
			t.Errorf("%q: code %d: %s%s", args, code, out.String(), errw.String())
		}
	}
}

// TestRefused checks that each field error in the agent's response is printed on its own line, without control characters.
func TestRefused(t *testing.T) {
	err := refusalError(&http.Response{StatusCode: http.StatusBadRequest, Body: io.NopCloser(strings.NewReader("maxPods: -1\nport: \x1b[31m0\n"))})
	if err.Error() != "maxPods: -1\n  port: ?[31m0" {
		t.Errorf("%q", err)
	}
}
