package observe

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
)

func TestTerminationMessage(t *testing.T) {
	root := t.TempDir()
	d := filepath.Join(root, "pods", "u1", "containers", "app")
	if err := os.MkdirAll(d, 0o700); err != nil {
		t.Fatal(err)
	}
	file := func(name, content string) string {
		p := filepath.Join(d, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	fifo := filepath.Join(d, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", d+"/link"); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for range 500 {
		lines.WriteString("2026-01-01T00:00:00Z stdout F a line of the log\n")
	}
	short := "2026-01-01T00:00:00Z stderr F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n"
	for _, tt := range []struct {
		name, log, policy, out string
		code                   int32
		want                   string
	}{
		{"written", file("a", "bye"), "File", "", 1, "bye"},
		{"nothing written", file("b", ""), "File", file("l", short), 1, ""},
		{"from the log", file("c", ""), "FallbackToLogsOnError", file("l", short), 1, "one\ntwo\n"},
		{"a line without its end", file("g", ""), "FallbackToLogsOnError", file("u", short+"2026-01-01T00:00:00Z stdout P DONE\n"), 1, "one\ntwo\nDONE"},
		{"not after success", file("d", ""), "FallbackToLogsOnError", file("l", short), 0, ""},
		{"long", file("e", strings.Repeat("x", 9000)), "File", "", 0, strings.Repeat("x", maxMessage)},
		{"not text", file("f", "a\xffb"), "File", "", 0, "ab"},
		{"a link", d + "/link", "File", "", 0, ""},
		{"a pipe", fifo, "File", "", 0, ""},
		{"gone", d + "/none", "FallbackToLogsOnError", d + "/none", 1, ""},
	} {
		st := &api.ContainerStatus{Metadata: &api.ContainerMetadata{Name: "app"}, Labels: labels("u1"), ExitCode: tt.code, LogPath: tt.out, Mounts: []*api.Mount{{ContainerPath: "/t", HostPath: tt.log}},
			Annotations: map[string]string{keys.MessagePath: "/t", keys.MessagePolicy: tt.policy}}
		if got := terminationMessage(root, st); got != tt.want {
			t.Errorf("%s: %.60q (%d bytes)", tt.name, got, len(got))
		}
	}
	st := &api.ContainerStatus{ExitCode: 1, LogPath: file("long", lines.String()), Annotations: map[string]string{keys.MessagePolicy: "FallbackToLogsOnError"}}
	if got := terminationMessage(root, st); len(got) != maxMessageLines*len("a line of the log\n") || !strings.HasPrefix(got, "a line") {
		t.Errorf("%d bytes of a long log: %.40q", len(got), got)
	}
}

// TestMessageOfALogBehindSymlink checks that a pod that can write to the directory of all logs cannot make the agent return lines of a file
// outside that directory as the termination message.
func TestMessageOfALogBehindSymlink(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	log := filepath.Join(root, "pods/ns_web_u1/c/0.log")
	line := []byte("2026-01-01T00:00:00Z stdout F bye\n")
	if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o700), os.WriteFile(log, line, 0o600)); err != nil {
		t.Fatal(err)
	}
	st := &api.ContainerStatus{ExitCode: 1, LogPath: log, Annotations: map[string]string{keys.MessagePolicy: "FallbackToLogsOnError"}}
	if got := terminationMessage(root, st); got != "bye\n" {
		t.Errorf("%q", got)
	}
	for i, dir := range []string{filepath.Dir(log), filepath.Dir(filepath.Dir(log))} {
		to := filepath.Join(outside, strconv.Itoa(i))
		if err := errors.Join(os.Rename(dir, to), os.Symlink(to, dir)); err != nil {
			t.Fatal(err)
		}
		if got := terminationMessage(root, st); got != "" {
			t.Errorf("%s is a symlink: %q", dir, got)
		}
		if err := errors.Join(os.Remove(dir), os.Rename(to, dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTerminationMessageIsNotInAVolume checks that only the node's own file is opened, whatever a pod mounts at the path of its termination
// log. Opening a file in a volume could block for ever, because the server of the volume may not answer.
func TestTerminationMessageIsNotInAVolume(t *testing.T) {
	root, own := t.TempDir(), "pods/u1/containers/app"
	volume := filepath.Join(t.TempDir(), own)
	for dir, text := range map[string]string{filepath.Join(root, own): "own", volume: "volume", filepath.Join(root, "volume"): "volume"} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "3"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		sources []string
		want    string
	}{
		"the log above a volume": {[]string{filepath.Join(root, "volume/3"), filepath.Join(root, own, "3")}, "own"},
		"the log first":          {[]string{filepath.Join(root, own, "3"), filepath.Join(root, "volume/3")}, "own"},
		"only a volume":          {[]string{filepath.Join(root, "volume/3")}, ""},
		"named like the log":     {[]string{filepath.Join(volume, "4")}, ""},
		"another container":      {[]string{filepath.Join(root, "pods/u1/containers/other/3")}, ""},
		"a directory":            {[]string{filepath.Join(root, own) + "/.."}, ""},
	} {
		st := &api.ContainerStatus{Metadata: &api.ContainerMetadata{Name: "app"}, Labels: labels("u1"), LogPath: "/none",
			Annotations: map[string]string{keys.MessagePath: "/t", keys.MessagePolicy: "File"}}
		for _, path := range tt.sources {
			st.Mounts = append(st.Mounts, &api.Mount{ContainerPath: "/t", HostPath: path})
		}
		if got := terminationMessage(root, st); got != tt.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
