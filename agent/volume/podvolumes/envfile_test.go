package podvolumes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

// TestEnvFile checks that the path of an env file cannot lead out of its volume. A FIFO in place of the file does not block the agent.
func TestEnvFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("A='host'"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := New(Config{Root: t.TempDir(), Hostname: func(*v1.Pod) (string, string) { return "h", "" }})
	if err != nil {
		t.Fatal(err)
	}
	pod := podtest.New("p", podtest.Volumes(
		v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Dir(outside)}}}))
	if err := v.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	dir := v.volumeDir(pod, &pod.Spec.Volumes[0], v.kindOf(&pod.Spec.Volumes[0]))
	for name, make := range map[string]func(path string) error{
		"env":  func(p string) error { return os.WriteFile(p, []byte("A='1'"), 0o600) },
		"fifo": func(p string) error { return unix.Mkfifo(p, 0o666) },
		"out":  func(p string) error { return os.Symlink(outside, p) },
		"in":   func(p string) error { return os.Symlink("/env", p) },
		"dir":  func(p string) error { return os.Mkdir(p, 0o777) },
		"huge": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o666), os.Truncate(p, 1<<40)) },
	} {
		if err := make(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ volume, path, want, err string }{
		{"v", "env", "A='1'", ""},
		{"v", "in", "A='1'", ""},
		{"v", "fifo", "", "regular file"},
		{"v", "dir", "", "regular file"},
		{"v", "huge", "", "more than 100 bytes"},
		{"host", filepath.Base(outside), "", `cannot find the emptyDir volume "host"`},
		{"none", "env", "", "cannot find"},
	} {
		got, err := v.EnvFile(pod, c.volume, c.path, 100)
		if string(got) != c.want || (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s/%s: %q, %v; want %q, %q", c.volume, c.path, got, err, c.want, c.err)
		}
	}
	for _, path := range []string{"out", "../../../../../secret", "../v/env", "none"} { // the path is resolved inside the volume
		if got, err := v.EnvFile(pod, "v", path, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}
