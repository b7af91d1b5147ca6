package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/readonly"
)

// makeFault replaces a file with a symlink whose target cannot be read. Reads fail with EIO, because no memory is mapped at address 0 of a
// process.
func makeFault(t *testing.T, file string) {
	t.Helper()
	if err := errors.Join(os.Remove(file), os.Symlink("/proc/self/mem", file)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(file); !readonly.IsDiskFault(err) {
		t.Fatalf("%s fails with %v", file, err)
	}
}

// TestCopies checks that a node uses the configuration of its last start when a disk fault makes a file unreadable. The node reports the
// fault. The first start of a node fails with the error of the disk.
func TestCopies(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubelet := func(lines string) string {
		return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + lines
	}
	main, first, second := write("kubelet.yaml", kubelet("maxPods: 10\n")), write("drop/1.conf", kubelet("podPidsLimit: 2000\n")),
		write("drop/2.conf", kubelet("registryBurst: 77\n"))
	edge := write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nbridgeName: copied0\n")
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	load := func() (*Config, error) {
		c, _, err := Load([]string{"--config=" + main, "--config-dir=" + dir + "/drop", "--edge-config=" + edge, "--state-dir=" + state, "--root-dir=" + dir + "/root"})
		return c, err
	}
	good := func(faults ...string) *Config {
		t.Helper()
		c, err := load()
		if err != nil {
			t.Fatal(err)
		}
		if k := c.Kubelet; k.MaxPods != 10 || *k.PodPidsLimit != 2000 || k.RegistryBurst != 77 || c.Edge.BridgeName != "copied0" {
			t.Errorf("%d pods, %d processes, burst %d, bridge %q", k.MaxPods, *k.PodPidsLimit, k.RegistryBurst, c.Edge.BridgeName)
		}
		told := strings.Join(c.FileFaults(), "\n")
		for _, f := range faults {
			if !strings.Contains(told, f) {
				t.Errorf("%s is not named:\n%s", f, told)
			}
		}
		if len(c.FileFaults()) != len(faults) {
			t.Errorf("want %d faults, have:\n%s", len(faults), told)
		}
		return c
	}
	c := good()
	content := map[string][]byte{}
	for _, f := range []string{main, first, second, edge} {
		content[f], _ = os.ReadFile(f)
		makeFault(t, f)
		if _, err := load(); !readonly.IsDiskFault(err) || !strings.Contains(err.Error(), f) {
			t.Errorf("%s without a copy: %v", f, err)
		}
		if err := errors.Join(os.Remove(f), os.WriteFile(f, content[f], 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.KeepFiles(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{main, second, edge} {
		makeFault(t, f)
	}
	c = good(main, second, edge)
	if err := c.KeepFiles(); err != nil {
		t.Fatal(err)
	}
	good(main, second, edge) // the copies of the unreadable files are kept
	third := write("drop/3.conf", "")
	makeFault(t, third)
	good(main, second, edge, third)

	info, err := os.Stat(filepath.Join(state, copiesFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the copies: %v, %v", info, err)
	}
	for f, text := range content {
		if err := errors.Join(os.Remove(f), os.WriteFile(f, text, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(third); err != nil {
		t.Fatal(err)
	}
	if err := good().KeepFiles(); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(filepath.Join(state, copiesFile)); err != nil || !os.SameFile(info, again) {
		t.Errorf("an unchanged copy was written again: %v", err)
	}
	write("kubelet.yaml", kubelet("maxPods: 11\n"))
	if c, err := load(); err != nil || c.Kubelet.MaxPods != 11 {
		t.Errorf("a file that was changed: %v", err)
	}
}

// TestEditedFiles checks which files have changed since they were read.
func TestEditedFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	files := map[string]string{"same": "a", "edited": "a", "removed": "a", "copied": "a", "directory": "a"}
	c := &Config{files: &ownFiles{}}
	for _, name := range []string{"same", "edited", "removed", "copied", "directory"} {
		if err := os.WriteFile(path(name), []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := c.files.read(path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.EditedFiles(); len(got) != 0 {
		t.Errorf("%q have changed", got)
	}
	makeFault(t, path("copied"))
	if err := errors.Join(os.WriteFile(path("same"), []byte("a"), 0o600), os.WriteFile(path("edited"), []byte("b"), 0o644),
		os.Remove(path("removed")), os.Remove(path("directory")), os.Mkdir(path("directory"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if got, want := c.EditedFiles(), []string{path("edited"), path("removed")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (&Config{}).EditedFiles(); len(got) != 0 {
		t.Errorf("without files: %q", got)
	}
}

// TestCopiesOfDirectory checks that a node uses the files of its last start when a disk fault makes a drop-in directory unreadable.
func TestCopiesOfDirectory(t *testing.T) {
	own := &ownFiles{atLastStart: []copiedFile{
		{"/d/0.conf", []byte("x")}, {"/e/1.conf", []byte("x")}, {"/e/sub/2.conf", []byte("x")},
	}}
	for dir, want := range map[string]string{"/e": "/e/1.conf /e/sub/2.conf", "/e/sub": "/e/sub/2.conf", "/none": ""} {
		names, ok := own.filesAtLastStart(dir, &os.PathError{Op: "readdirent", Path: dir, Err: unix.EBADMSG})
		if got := strings.Join(names, " "); !ok || got != want {
			t.Errorf("%s: %q, %v", dir, got, ok)
		}
	}
	if _, ok := own.filesAtLastStart("/e", os.ErrPermission); ok {
		t.Error("a directory that may not be read is not a fault of the disk")
	}
	if _, ok := (&ownFiles{}).filesAtLastStart("/e", unix.EIO); ok {
		t.Error("a node that never ran does without its drop-ins")
	}
}
