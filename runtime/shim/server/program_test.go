package server

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// copyProgram replaces the file at path with a copy of a program in $PATH.
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

func protected(t *testing.T, p openedPrograms, path string) (*exec.Cmd, bool) {
	t.Helper()
	cmd := exec.Command(path)
	p.protectCommand(cmd)
	return cmd, cmd.Path != path
}

// TestProtect checks that crun is started from a read-only mount. Not even root can write to this mount. The descriptor of the program is
// not inherited. If the file of the program was replaced, it is opened again.
func TestProtect(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	path, p := filepath.Join(t.TempDir(), crunName), openedPrograms{}
	copyProgram(t, "true", path)
	for range 2 {
		cmd, ok := protected(t, p, path)
		if !ok {
			t.Fatal("the path of crun is unchanged")
		}
		if f, err := os.OpenFile(cmd.Path, os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
			f.Close()
			t.Errorf("crun can be opened for writing: %v", err)
		}
		if flags, err := unix.FcntlInt(uintptr(p[path].fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("the file descriptor is inherited: %#x, %v", flags, err)
		}
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	}
	before := p[path].fd
	copyProgram(t, "false", path)
	cmd, ok := protected(t, p, path)
	if !ok || len(p) != 1 {
		t.Fatalf("the new program is not open: %v", p)
	}
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the old program was started: %v", err)
	}
	if before != p[path].fd && unix.Fstat(before, &unix.Stat_t{}) == nil {
		t.Error("the old program is still open")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if cmd, _ := protected(t, p, path); !errors.Is(cmd.Run(), os.ErrNotExist) {
		t.Error("a removed program was started")
	}
}

// TestProtectOthers checks that a script, or an OCI runtime other than crun, is started from its own path.
func TestProtectOthers(t *testing.T) {
	dir, p := t.TempDir(), openedPrograms{}
	script, other := filepath.Join(dir, crunName), filepath.Join(dir, "runc")
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
