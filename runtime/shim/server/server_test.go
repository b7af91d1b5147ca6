package server

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// TestLeave checks that Run returns after StopWhenIdle when the last container has ended.
func TestLeave(t *testing.T) {
	dir := t.TempDir()
	oci := filepath.Join(dir, "oci")
	script := "#!/bin/sh\ncase \"$*\" in *run*)\nuntil [ \"$1\" = --pid-file ]; do shift; done\nsleep 1000 & echo $! >$2; esac\n"
	if err := os.WriteFile(oci, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := New(slog.New(slog.DiscardHandler), nil)
	ended := make(chan error)
	go func() { ended <- s.Run(context.Background(), l) }()
	c, err := s.runContainer(nil, wire.RunRequest{ID: "c", Bundle: dir, OCI: wire.OCI{Path: oci, Root: dir}})
	if err != nil {
		t.Fatal(err)
	}
	s.StopWhenIdle()
	s.noteChange() // makes expire check again
	select {
	case err := <-ended:
		t.Fatalf("the shim ended before its container: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := unix.Kill(c.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, wire.ExitFile)); err != nil {
		t.Error(err)
	}
}

// TestEndedEarly checks that the reaper reaps a process that has ended before the reaper waits for it.
func TestEndedEarly(t *testing.T) {
	r := newReaper()
	cmd := exec.Command("/bin/true")
	done := make(chan error, 1)
	started := make(chan int, 1)
	go func() {
		done <- r.runCommand(cmd, (*exec.Cmd).Start, func(pid int) (<-chan struct{}, func()) {
			started <- pid
			return nil, func() {}
		})
	}()
	if err := unix.Waitid(unix.P_PID, <-started, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	runReaper(t, r)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
