package ctrd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestCopyMount checks that the root directory of a copied image has the mode that it has in the image. The copying stops when its context
// ends.
func TestCopyMount(t *testing.T) {
	image := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(image, "file"), []byte("image"), 0o640),
		os.Chmod(image, 0o750|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	m, err := copyMount(t.Context(), t.TempDir(), []string{image})
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(m.Source)
	if b, missing := os.ReadFile(filepath.Join(m.Source, "file")); err != nil || missing != nil || string(b) != "image" ||
		st.Mode() != os.ModeDir|os.ModeSticky|0o750 {
		t.Errorf("%v, %q: %v, %v", st.Mode(), b, err, missing)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := copyMount(ended, t.TempDir(), []string{image}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestParents checks where a mount, a device and the working directory of a container may be. No file below a FIFO or a regular file can be
// created, neither in the image nor in a volume. It does not matter what a mount hides.
func TestParents(t *testing.T) {
	image, volume := t.TempDir(), t.TempDir()
	for _, dir := range []string{image, volume} {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "dir"), 0o755), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666),
			os.WriteFile(filepath.Join(dir, "file"), nil, 0o666), os.Symlink("/fifo", filepath.Join(dir, "link")),
			os.Symlink("/none", filepath.Join(dir, "dangling"))); err != nil {
			t.Fatal(err)
		}
	}
	bind := func(at string) specs.Mount { return specs.Mount{Destination: at, Type: "bind", Source: volume} }
	option := func(at string) specs.Mount {
		return specs.Mount{Destination: at, Source: volume, Options: []string{"ro", "rbind"}}
	}
	tmpfs := func(at string) specs.Mount { return specs.Mount{Destination: at, Type: "tmpfs", Source: "tmpfs"} }
	for _, c := range []struct {
		name, device, cwd string
		mounts            []specs.Mount
		valid             bool
	}{
		{name: "directories", mounts: []specs.Mount{bind("/dir/a"), bind("/dir/a/dir/b"), tmpfs("/none/a/b"), tmpfs("/dangling/a")}, valid: true},
		{name: "files as targets", mounts: []specs.Mount{bind("/fifo"), bind("/file"), bind("/link")}, valid: true},
		{name: "FIFO", mounts: []specs.Mount{bind("/fifo/a")}},
		{name: "FIFO further above", mounts: []specs.Mount{tmpfs("/fifo/a/b/c")}},
		{name: "file", mounts: []specs.Mount{tmpfs("/file/a")}},
		{name: "link to a FIFO", mounts: []specs.Mount{bind("/link/a")}},
		{name: "FIFO in a volume", mounts: []specs.Mount{bind("/dir"), bind("/dir/fifo/a")}},
		{name: "FIFO in a volume of a CDI device", mounts: []specs.Mount{option("/dir"), option("/dir/fifo/a")}},
		{name: "volume in place of the root", mounts: []specs.Mount{bind("/"), bind("/fifo/a")}},
		{name: "volume that is a FIFO", mounts: []specs.Mount{
			{Destination: "/dir", Type: "bind", Source: filepath.Join(volume, "fifo")}, bind("/dir/a")}},
		{name: "hidden FIFO", mounts: []specs.Mount{tmpfs("/fifo"), tmpfs("/fifo/a")}, valid: true},
		{name: "FIFO that a later mount hides", mounts: []specs.Mount{bind("/dir"), bind("/dir/fifo/a"), tmpfs("/dir")}},
		{name: "FIFO in a volume that is hidden", mounts: []specs.Mount{bind("/dir/a"), tmpfs("/dir"), bind("/dir/a/fifo/b")}, valid: true},
		{name: "path with the same prefix", mounts: []specs.Mount{tmpfs("/fif"), bind("/fifo/a")}},
		{name: "device", device: "/fifo/a"},
		{name: "device below a tmpfs", device: "/fifo/a", mounts: []specs.Mount{tmpfs("/fifo")}, valid: true},
		{name: "working directory", cwd: "/fifo/a"},
		{name: "relative path", mounts: []specs.Mount{bind("fifo/a")}},
	} {
		spec := &specs.Spec{Mounts: c.mounts, Process: &specs.Process{Cwd: c.cwd}, Linux: &specs.Linux{}}
		if c.device != "" {
			spec.Linux.Devices = []specs.LinuxDevice{{Path: c.device}}
		}
		if err := checkParents(image, spec); (err == nil) != c.valid {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
