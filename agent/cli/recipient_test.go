package cli

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestRecipientWithoutAgent checks that key recipient reads the key itself if no agent runs, if the agent is an earlier version, and if it
// has flags of the agent. It does not read the key if the user may not connect, or named a socket: the key of the default directories may
// be that of another node.
func TestRecipientWithoutAgent(t *testing.T) {
	old, stop := servertest.Start(t)
	var got []string
	var out strings.Builder
	e := Env{Stdout: &out, Stderr: &out, Getenv: func(name string) string { return map[string]string{"ISLET_SOCKET": old.Socket}[name] }}
	e.Key = func(all []string, _ io.Reader, _, _ io.Writer) int { got = all; return 0 }
	key := func(code int, isNamed bool) []string {
		t.Helper()
		got = nil
		x := &tool{Env: e, out: &out, socket: old.Socket}
		_, err := x.findRecipient(t.Context(), isNamed)
		if codeOf(err) != code {
			t.Errorf("named %v: %v, want code %d", isNamed, err, code)
		}
		return got
	}
	flags := []string{"--state-dir=/x"}
	recipient := func(args ...string) int {
		return codeOf(setupKeyRecipient(&tool{Env: e, out: &out}, nil)(t.Context(), args))
	}
	is := recipient(flags...)
	if is != 0 || !slices.Equal(got, []string{"recipient", flags[0]}) {
		t.Errorf("flags of the agent: %d, %q: %s", is, got, out.String())
	}
	for _, absent := range []struct {
		what string
		code int
	}{{"an earlier agent", ExitNotFound}, {"no agent", ExitUnreachable}} {
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
	x := &tool{Env: e, out: &out, socket: old.Socket}
	err := x.unreachableError(&fs.PathError{Err: fs.ErrPermission})
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("%v", err)
	}
}
