package ctrd

import (
	"bufio"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/runtime/selinux"
	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// A shimConn is a connection to a shim that the test plays.
type shimConn struct {
	net.Conn
	t *testing.T
}

func (c shimConn) send(r wire.Reply) {
	b, err := json.Marshal(r)
	if err != nil {
		c.t.Error(err)
	}
	c.Write(append(b, '\n')) // fails if the agent has closed the connection
}

// playShim connects a runtime to a shim that the test plays. The function answers each request.
func playShim(t *testing.T, r *Runtime, name string, answer func(c shimConn, r wire.Request)) *shimGroup {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.shims.socketPath(name), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as in shim.Start
	go func() {
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for in := bufio.NewScanner(conn); in.Scan(); {
			var req wire.Request
			if json.Unmarshal(in.Bytes(), &req) != nil {
				return
			}
			answer(shimConn{conn, t}, req)
		}
	}()
	g := &shimGroup{name: name, pods: map[string]bool{}}
	r.shims.mu.Lock()
	r.shims.groups[name] = g
	r.shims.mu.Unlock()
	if _, err := r.shims.connect(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.shims.close)
	return g
}

// shimRuntime returns a runtime with directories but without storage.
func shimRuntime(t *testing.T) *Runtime {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "r") // a socket's name has at most 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &Runtime{
		c: Config{ShimPods: 1, ShimPath: "/bin/true"}, log: slog.New(slog.DiscardHandler), selinux: selinux.New(),
		dirs: dirs{
			sandboxes: filepath.Join(dir, "records"), bundles: filepath.Join(dir, "b"), files: filepath.Join(dir, "f"),
			pins: filepath.Join(dir, "ns"), sockets: filepath.Join(dir, "s"),
		},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		podSandboxes: byPod[sandbox]{}, podContainers: byPod[container]{},
	}
	r.shims = newShims(r)
	for _, d := range []string{r.dirs.sandboxes, r.dirs.bundles, r.dirs.files, r.dirs.pins, r.dirs.sockets} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestShimNameInUse checks a sandbox that is created while an unused shim is shut down. It gets another shim, and its shim keeps its socket.
// When the shutdown is complete, the name is free again.
func TestShimNameInUse(t *testing.T) {
	r := shimRuntime(t)
	shuttingDown, exit := make(chan struct{}), make(chan struct{})
	ending := playShim(t, r, "1", func(c shimConn, req wire.Request) {
		if req.Method == wire.MethodShutdown {
			close(shuttingDown)
			<-exit
		}
		c.send(wire.Reply{ID: req.ID})
	})
	if name := r.shims.assignSandbox("old", false); name != "1" {
		t.Fatal(name)
	}
	removed := make(chan struct{})
	go func() { defer close(removed); r.shims.removeSandbox("old") }()
	<-shuttingDown
	if name := r.shims.assignSandbox("new", false); name != "2" {
		t.Errorf("the new sandbox is in shim %s, which is being shut down", name)
	}
	newer := playShim(t, r, "2", func(shimConn, wire.Request) {})
	r.shims.removeSandbox("old") // a repeated removal does not wait for the first one, and changes nothing
	close(exit)
	<-removed
	if _, err := os.Lstat(r.shims.socketPath("1")); !os.IsNotExist(err) {
		t.Errorf("the socket of the ended shim: %v", err)
	}
	if _, err := os.Lstat(r.shims.socketPath("2")); err != nil || newer.client == nil {
		t.Errorf("the new shim has lost its socket: %v", err)
	}
	if name := r.shims.assignSandbox("third", false); name != "1" || r.shims.groups["1"] == ending {
		t.Errorf("the third sandbox is in shim %s", name)
	}
}

// TestStartOfEndedShim checks a call that has found a shim before the shim was shut down. It must not start this shim again, because no
// sandbox would end it, and the name may belong to another shim.
func TestStartOfEndedShim(t *testing.T) {
	r := shimRuntime(t)
	exit := make(chan struct{})
	shuttingDown := make(chan struct{})
	g := playShim(t, r, "1", func(c shimConn, req wire.Request) {
		close(shuttingDown)
		<-exit
		c.Close() // the shim exits without an answer
	})
	r.shims.assignSandbox("old", false)
	go r.shims.removeSandbox("old")
	<-shuttingDown
	r.shims.mu.Lock()
	g.client = nil // the caller comes after the end of the connection
	r.shims.mu.Unlock()
	result := make(chan error)
	go func() { _, err := r.shims.startClient(t.Context(), "1"); result <- err }()
	close(exit)
	if err := <-result; !errors.Is(err, shim.ErrGone) {
		t.Errorf("the start of an ended shim: %v", err)
	}
	if r.shims.hasShim("1") {
		t.Error("the ended shim is known")
	}
}
