package ctrd

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// listenAsShim listens at the socket of a shim with room for very few connections.
func listenAsShim(t *testing.T, r *Runtime, name string) {
	t.Helper()
	listenFull(t, r.shims.socketPath(name))
}

// fillQueue connects to a socket until the kernel accepts no more connections for it.
func fillQueue(t *testing.T, path string) {
	t.Helper()
	for {
		conn, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
}

// listenFull listens at a socket with room for very few connections, and accepts none.
func listenFull(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
}

// TestUnknownShimKept checks a start that cannot tell whether a shim is running: its context has ended, or the kernel accepts no more
// connections for the shim. The start fails, and the socket stays. If no process listens at a socket, the socket is removed.
func TestUnknownShimKept(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx     context.Context
		prepare func(t *testing.T, r *Runtime)
		want    error
	}{
		"ended context": {ended, func(t *testing.T, r *Runtime) { listenAsShim(t, r, "1") }, context.Canceled},
		"ended context, dead shim": {ended, func(t *testing.T, r *Runtime) {
			if err := os.WriteFile(r.shims.socketPath("1"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, context.Canceled},
		"full queue": {t.Context(), func(t *testing.T, r *Runtime) {
			listenAsShim(t, r, "1")
			fillQueue(t, r.shims.socketPath("1"))
		}, unix.EAGAIN},
	} {
		t.Run(name, func(t *testing.T) {
			r := shimRuntime(t)
			r.dirs.containers = t.TempDir()
			test.prepare(t, r)
			if err := r.recoverState(test.ctx); !errors.Is(err, test.want) {
				t.Errorf("the start has ended with %v", err)
			}
			if _, err := os.Lstat(r.shims.socketPath("1")); err != nil {
				t.Errorf("the shim has lost its socket: %v", err)
			}
		})
	}
	r := shimRuntime(t)
	if err := os.WriteFile(r.shims.socketPath("1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if adopted, err := r.adoptShims(t.Context()); err != nil || len(adopted) > 0 {
		t.Errorf("adopted %v, %v", adopted, err)
	}
	if _, err := os.Lstat(r.shims.socketPath("1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a dead shim: %v", err)
	}
}
