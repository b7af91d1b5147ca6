package server

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// copyProgram replaces the file at path by a program of the machine.
func copyProgram(t *testing.T, name, path string) {
	t.Helper()
	from, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path+".new", b, 0o755), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

func protected(t *testing.T, p programs, path string) (*exec.Cmd, bool) {
	t.Helper()
	cmd := exec.Command(path)
	p.protect(cmd)
	return cmd, cmd.Path != path
}

// crun is started from a mount on which nobody can write to it, not even root, and which its
// processes do not inherit. A replaced program gets a new mount.
func TestProtect(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	path, p := filepath.Join(t.TempDir(), crun), programs{}
	copyProgram(t, "true", path)
	for range 2 {
		cmd, ok := protected(t, p, path)
		if !ok {
			t.Fatal("it is started where it can be written to")
		}
		if f, err := os.OpenFile(cmd.Path, os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
			f.Close()
			t.Errorf("it can be written to: %v", err)
		}
		if flags, err := unix.FcntlInt(uintptr(p[path].fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("others inherit it: %#x, %v", flags, err)
		}
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	}
	before := p[path].fd
	copyProgram(t, "false", path)
	cmd, ok := protected(t, p, path)
	if !ok || len(p) != 1 {
		t.Fatalf("of the new one nothing is known: %v", p)
	}
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the program before was started: %v", err)
	}
	if before != p[path].fd && unix.Fstat(before, &unix.Stat_t{}) == nil {
		t.Error("the program before is still open")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if cmd, _ := protected(t, p, path); !errors.Is(cmd.Run(), os.ErrNotExist) {
		t.Error("a program that is gone is started")
	}
}

// A script, which its interpreter must be able to open, and other OCI runtimes are started
// directly.
func TestProtectOthers(t *testing.T) {
	dir, p := t.TempDir(), programs{}
	script, other := filepath.Join(dir, crun), filepath.Join(dir, "runc")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	copyProgram(t, "true", other)
	for _, path := range []string{script, other} {
		cmd, changed := protected(t, p, path)
		if changed || len(p) != 0 {
			t.Errorf("%s is started as %s", path, cmd.Path)
		}
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	}
}
