package node

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestRecipientWithoutAgent checks that key recipient reads the key itself if no agent runs, if the agent is an earlier version, and if it
// has flags of the agent. It does not read the key if the user may not connect, or named a socket: the key of the default directories may
// be that of another node.
func TestRecipientWithoutAgent(t *testing.T) {
	old, stop := servertest.Start(t)
	var got []string
	var out strings.Builder
	e := command.Env{Stdout: &out, Stderr: &out, Getenv: func(name string) string { return map[string]string{"ISLET_SOCKET": old.Socket}[name] }}
	e.Key = func(all []string, _ io.Reader, _, _ io.Writer) int { got = all; return 0 }
	key := func(code int, isNamed bool) []string {
		t.Helper()
		got = nil
		x := &command.Tool{Env: e, Out: &out, Socket: old.Socket}
		_, err := findRecipient(t.Context(), x, isNamed)
		if command.CodeOf(err) != code {
			t.Errorf("named %v: %v, want code %d", isNamed, err, code)
		}
		return got
	}
	flags := []string{"--state-dir=/x"}
	recipient := func(args ...string) int {
		return command.CodeOf(setupKeyRecipient(&command.Tool{Env: e, Out: &out}, nil)(t.Context(), args))
	}
	is := recipient(flags...)
	if is != 0 || !slices.Equal(got, []string{"recipient", flags[0]}) {
		t.Errorf("flags of the agent: %d, %q: %s", is, got, out.String())
	}
	for _, absent := range []struct {
		what string
		code int
	}{{"an earlier agent", command.ExitNotFound}, {"no agent", command.ExitUnreachable}} {
		if got := key(0, false); !slices.Equal(got, []string{"recipient"}) {
			t.Errorf("%s: %q", absent.what, got)
		}
		if got := key(absent.code, true); got != nil {
			t.Errorf("%s at a socket that was named: %q", absent.what, got)
		}
		if is := recipient(); is != absent.code || got != nil {
			t.Errorf("%s at the socket of the environment: %d, %q", absent.what, is, got)
		}
		stop()
	}
	x := &command.Tool{Env: e, Out: &out, Socket: old.Socket}
	err := client.Unreachable(x, &fs.PathError{Err: fs.ErrPermission})
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("%v", err)
	}
}
