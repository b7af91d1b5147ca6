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

// This helper installs a script in place of a program. The script's directory comes first in the PATH. The script may call the program as
// $real.
func stand(t *testing.T, name, script string) {
	t.Helper()
	real, err := exec.LookPath(name)
	requireNoError(t, err)
	dir := t.TempDir()
	requireNoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nreal="+real+"\n"+script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestUnmountWithoutServer checks that a mount of an unreachable server is removed without a response of the server. A process may still be
// waiting for the server.
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
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second) // the forced unmount after forceTime has this limit too
			defer stop()
			requireNoError(t, unmountRemote(ctx, path, 300*time.Millisecond))
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the mount point was not removed: %v", err)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "server")
	requireNoError(t, os.Mkdir(path, 0o755))
	requireNoError(t, unix.Mount("tmpfs", path, "tmpfs", 0, ""))
	stand(t, "umount", "exit 1")
	if err := unmountRemote(t.Context(), path, time.Second); err == nil {
		t.Error("no error although the volume is still mounted")
	}
	requireNoError(t, unix.Unmount(path, 0))
}

// TestUnmountHiddenDevice checks that the unmount of a device fails if something is mounted over a parent directory, and succeeds after
// that, also if mounts are stacked at the path.
func TestUnmountHiddenDevice(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "device")
	mount := func(at string) {
		t.Helper()
		requireNoError(t, os.MkdirAll(path, 0o755))
		requireNoError(t, unix.Mount("tmpfs", at, "tmpfs", 0, ""))
	}
	mount(path)
	mount(path)
	mount(parent)
	for range 2 { // the path does not exist, and is an empty directory
		if err := unmountDevice(path); err == nil {
			t.Error("no error although the device is still mounted")
		}
		requireNoError(t, os.MkdirAll(path, 0o755))
	}
	requireNoError(t, unix.Unmount(parent, 0))
	requireNoError(t, unmountDevice(path))
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mount point was not removed: %v", err)
	}
}
