package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/islet-edge/islet/internal/inputweight"
)

// program writes a shell script, and returns it as a plugin with the API version v1.
func program(t *testing.T, script string) plugin {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "acme")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	return plugin{path: path, apiVersion: pluginGroup + "v1"}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func answerOf(key, user string) string {
	return fmt.Sprintf(`{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":%q,"auth":{"a.example":{"username":%q,"password":"s3cret"}}}`, key, user)
}

// TestPlugin checks that a plugin gets the request on stdin and the configured arguments. Its configured environment variables follow those
// of the agent.
func TestPlugin(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	t.Setenv("ISLET_OUTER", "outer")
	p := program(t, `{ cat; echo; echo "$@"; echo "$ISLET_OUTER $MINE"; } > `+seen+`
echo '`+answerOf("Image", "ann")+`'`)
	p.args, p.env = []string{"get", "a b"}, []string{"MINE=mine"}
	r, err := p.callProgram(t.Context(), credentialv1.CredentialProviderRequest{Image: "a.example/app", ServiceAccountToken: "ey", ServiceAccountAnnotations: map[string]string{"k": "v"}})
	if err != nil || r.Auth["a.example"].Username != "ann" {
		t.Fatal(r, err)
	}
	text, err := os.ReadFile(seen)
	want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"a.example/app","serviceAccountToken":"ey","serviceAccountAnnotations":{"k":"v"}}
get a b
outer mine
`
	if string(text) != want || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

// TestBadPlugin checks that each failure of a plugin returns an error. The error contains no part of the plugin's standard output.
func TestBadPlugin(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"exit code":        {"echo no such role >&2; exit 3", "exit status 3: no such role"},
		"killed":           {"kill -9 $$", "signal: killed"},
		"silence":          {"", "is not the JSON"},
		"no JSON":          {"echo s3cret", "is not the JSON"},
		"other version":    {"echo '" + strings.Replace(answerOf("Image", "ann"), "/v1\"", "/v1beta1\"", 1) + "'", "requested version credentialprovider.kubelet.k8s.io/v1"},
		"other kind":       {"echo '" + strings.Replace(answerOf("Image", "ann"), "Response", "Request", 1) + "'", "requested version credentialprovider.kubelet.k8s.io/v1"},
		"unknown field":    {"echo '" + strings.Replace(answerOf("Image", "ann"), "{", `{"more":1,`, 1) + "'", "is not the JSON"},
		"no key":           {"echo '" + answerOf("", "ann") + "'", "cacheKeyType"},
		"other key":        {"echo '" + answerOf("Pod", "ann") + "'", "cacheKeyType"},
		"no end of output": {"while :; do echo s3crets3crets3crets3cret; done", "more than 262144 bytes"},
		"many registries":  {"echo '{\"kind\":\"CredentialProviderResponse\",\"auth\":{'; yes '\"a\":{},' | head -n 31000; echo '\"a\":{}}}'", inputweight.ErrTooHeavy.Error()},
		"noise on stderr":  {"i=0; while [ $i -lt 2000 ]; do echo noise >&2; i=$((i+1)); done; exit 1", "exit status 1: noise"},
		"reads nothing":    {"exec 0<&-; echo '" + answerOf("Registry", "ann") + "'", ""},
	} {
		p := program(t, tt.script)
		_, err := p.callProgram(t.Context(), credentialv1.CredentialProviderRequest{Image: "a.example/app"})
		if tt.want == "" && err != nil || tt.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 2*stderrLimit || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHangingPlugin checks that a hanging plugin is killed with its children at the deadline.
func TestHangingPlugin(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	must(t, unix.Mkfifo(pids, 0o600))
	p := program(t, "sleep 1000 & echo $$ $! > "+pids+"; wait")
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := p.callProgram(ctx, credentialv1.CredentialProviderRequest{})
		ended <- err
	}()
	text, err := os.ReadFile(pids) // the plugin is running
	must(t, err)
	stop(errors.New("its time is over"))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "its time is over") {
		t.Error(err)
	}
	for _, f := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(f)
		must(t, err)
		awaitEnd(t, pid)
	}
}

// awaitEnd waits until a process has exited. Another process may reap it.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	must(t, err)
	defer unix.Close(fd)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			must(t, err)
			return
		}
	}
}

// TestPluginLeavesChild checks that a plugin's child process is killed when it outlives the plugin. The agent does not wait for the child's
// output.
func TestPluginLeavesChild(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	p := program(t, "sleep 1000 & echo $! > "+pid+"; echo '"+answerOf("Global", "ann")+"'")
	if _, err := p.callProgram(t.Context(), credentialv1.CredentialProviderRequest{}); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(pid)
	must(t, err)
	n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	must(t, err)
	awaitEnd(t, n)
}

// TestTrusted checks that a plugin runs only if root alone can modify its program.
func TestTrusted(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(path string) error
		want string
	}{
		"good":            {func(string) error { return nil }, ""},
		"gone":            {os.Remove, "does not exist"},
		"of the group":    {func(p string) error { return os.Chmod(p, 0o775) }, "is writable by other users"},
		"of all":          {func(p string) error { return os.Chmod(p, 0o757) }, "is writable by other users"},
		"no program":      {func(p string) error { return os.Chmod(p, 0o644) }, "is not an executable file"},
		"directory":       {func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, "is not an executable file"},
		"fifo":            {func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o755)) }, "is not an executable file"},
		"symbolic link":   {func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/bin/true", p)) }, "symbolic link"},
		"open directory":  {func(p string) error { return os.Chmod(filepath.Dir(p), 0o777) }, "is writable by other users"},
		"other owner":     {func(p string) error { return os.Chown(p, 12345, -1) }, "belongs to user 12345"},
		"other directory": {func(p string) error { return os.Chown(filepath.Dir(p), 12345, -1) }, "belongs to user 12345"},
	} {
		p := program(t, "echo '"+answerOf("Image", "ann")+"'")
		must(t, tt.do(p.path))
		_, err := p.callProgram(t.Context(), credentialv1.CredentialProviderRequest{})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPatience checks that a call of a plugin has the same timeout as in a kubelet.
func TestPatience(t *testing.T) {
	if callTimeout != time.Minute {
		t.Error(callTimeout)
	}
}
