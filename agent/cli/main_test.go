package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
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

func TestUsage(t *testing.T) {
	n, stop := servertest.Start(t)
	check(t, n, run(t, n, "", "stauts"), command.ExitUsage, "", "islet: unknown command \"stauts\": did you mean \"status\"?\n")
	check(t, n, run(t, n, "", "logs", "--nope"), command.ExitUsage, "", "islet: unknown flag: --nope\nSee 'islet logs --help'\n")
	check(t, n, run(t, n, "", "exec", "web"), command.ExitUsage, "", "islet: exec needs a pod and a command: islet exec POD -- COMMAND\n")
	if got := run(t, n, "", "help"); got.Code != 0 || !strings.Contains(got.Out, "Exit codes: 0 done") ||
		strings.Contains(got.Out, "__complete") {
		t.Errorf("help: %+v", got)
	}
	if got := run(t, n, "", "help", "images", "import"); got.Code != 0 ||
		!strings.Contains(got.Out, "islet images import [flags] ARCHIVE... | -\n") {
		t.Errorf("help of a command: %+v", got)
	}
	check(t, n, run(t, n, "", "frob", "x"), command.ExitUsage, "", "islet: unknown command \"frob\": see 'islet help'\n")
	for _, args := range [][]string{{}, {"--help"}, {"-h"}} {
		if got := run(t, n, "", args...); got.Code != 0 || !strings.Contains(got.Out, "port-forward") ||
			strings.Contains(got.Out, "--pod-manifest-path") {
			t.Errorf("islet %q: %+v", args, got)
		}
	}
	check(t, nil, run(t, nil, "", "--socket", n.Socket, "pods", "none"), command.ExitNotFound, "", "islet: pod \"none\" not found\n")
	check(t, nil, run(t, nil, "", "--socket="+n.Socket, "pods", "none"), command.ExitNotFound, "", "islet: pod \"none\" not found\n")
	if got := run(t, nil, "", "--socket"); got.Code != command.ExitUsage || !strings.Contains(got.Out, "COMMAND [flags]") {
		t.Errorf("no command after --socket: %+v", got)
	}
	for _, c := range []struct {
		called, args string
		service      bool
		want         bool
	}{
		{"islet", "pods", false, true},
		{"/usr/bin/islet", "--socket x pods", false, true},
		{"islet", "--v=2", false, false},
		{"islet", "--socket-x=1", false, false},
		{"islet", "", false, true},
		{"islet", "", true, false}, // started by the service file of an earlier version, without flags
		{"/usr/local/bin/kubelet", "", false, false},
		{"islet", "--help", true, true},
		{"islet", "-h", false, true},
		{"islet", "--help-flags", false, true},
		{"islet", "--v=2 --help", false, false},
		{"kubelet", "--help", false, false},
	} {
		if got := IsCommand(c.called, strings.Fields(c.args), c.service); got != c.want {
			t.Errorf("%s %s (service %v): command %v", c.called, c.args, c.service, got)
		}
	}
	stop()
	check(t, n, run(t, n, "", "status"), command.ExitUnreachable, "",
		"islet: cannot reach the agent at DIR/s: is it running? (systemctl status islet)\n")
	check(t, n, run(t, n, "", "exec", "web", "--", "ls"), command.ExitUnreachable, "",
		"islet: cannot reach the agent at DIR/s: is it running? (systemctl status islet)\n")
}
