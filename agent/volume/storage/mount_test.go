package storage

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stand puts a program before all others of its name. It may call the real one as $real.
func stand(t *testing.T, name, script string) {
	t.Helper()
	real, err := exec.LookPath(name)
	requireNoError(t, err)
	dir := t.TempDir()
	requireNoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nreal="+real+"\n"+script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The mount of a server that is gone is taken away without the server, and is gone although
// who let go of it waits for the server still.
func TestUnmountWithoutServer(t *testing.T) {
	for name, script := range map[string]string{
		"orderly":     `exec $real "$@"`,
		"hangs":       `case "$*" in *-f*-l*) exec $real "$@";; esac; exec sleep 1000`,
		"hangs later": `$real -l "$1"; exec sleep 1000`,
		"hangs twice": `case "$*" in *-f*-l*) $real "$@";; esac; exec sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "server")
			requireNoError(t, os.Mkdir(path, 0o755))
			requireNoError(t, unix.Mount("tmpfs", path, "tmpfs", 0, ""))
			stand(t, "umount", script)
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second) // also of what must be done within forceTime
			defer stop()
			requireNoError(t, unmountRemote(ctx, path, 300*time.Millisecond))
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the mount point is there: %v", err)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "server")
	requireNoError(t, os.Mkdir(path, 0o755))
	requireNoError(t, unix.Mount("tmpfs", path, "tmpfs", 0, ""))
	stand(t, "umount", "exit 1")
	if err := unmountRemote(t.Context(), path, time.Second); err == nil {
		t.Error("it is said to be unmounted, and is not")
	}
	requireNoError(t, unix.Unmount(path, 0))
}
