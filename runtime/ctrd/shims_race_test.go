package ctrd

import (
	"bufio"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

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
		starting: map[string]*sandbox{}, sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
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

// TestShimNameInUse checks a sandbox that is created while an unused shim is shut down. It gets another shim, which keeps its socket.
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

// sharedPIDSandbox returns a sandbox with an init process and without namespaces of its own.
func sharedPIDSandbox(id string) *sandbox {
	options := &api.NamespaceOption{Network: api.NamespaceMode_NODE, Ipc: api.NamespaceMode_NODE, Pid: api.NamespaceMode_POD}
	return &sandbox{
		rec: sandboxRecord{Format: plainFormat, ID: id},
		config: &api.PodSandboxConfig{
			Metadata:  &api.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: id},
			DnsConfig: &api.DNSConfig{},
			Linux: &api.LinuxPodSandboxConfig{
				SecurityContext: &api.LinuxSandboxSecurityContext{NamespaceOptions: options},
			},
		},
		ready: true,
	}
}

// TestInitEndsDuringStart checks an init process that ends while RunPodSandbox starts its sandbox. The shim reports the end, or dies
// itself, before or after its answer. The sandbox is never ready, because no container could join its PID namespace.
func TestInitEndsDuringStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	end := wire.Reply{Event: &wire.Container{ID: "pod1", Exit: &wire.Exit{Code: 1, FinishedAt: time.Now()}}}
	for name, start := range map[string]func(c shimConn, running wire.Reply){
		"reported before the answer": func(c shimConn, running wire.Reply) { c.send(end); c.send(running) },
		"reported after the answer":  func(c shimConn, running wire.Reply) { c.send(running); c.send(end) },
		"the shim dies":              func(c shimConn, running wire.Reply) { c.send(running); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := shimRuntime(t)
			g := playShim(t, r, "1", func(c shimConn, req wire.Request) {
				if req.Method == wire.MethodRun {
					start(c, wire.Reply{ID: req.ID, Body: json.RawMessage(`{"pid":2147483647}`)})
					return
				}
				c.send(wire.Reply{ID: req.ID, Body: json.RawMessage(`[]`)})
			})
			client, s := g.client, sharedPIDSandbox("pod1")
			err := r.runSandbox(t.Context(), s)
			if err != nil && !errors.Is(err, errInitEnded) && !errors.Is(err, shim.ErrGone) {
				t.Fatal(err)
			}
			if _, err := client.List(t.Context()); err != nil { // after an answer, every earlier message of the shim has been handled
				client.Close() // the shim is gone, and this has been handled
			}
			r.tasks.Wait()
			if s.ready && r.sandboxes["pod1"] == s {
				t.Errorf("the sandbox is ready with the init process %d, which has ended; RunPodSandbox returned %v", s.pid, err)
			}
			if len(r.starting) > 0 {
				t.Errorf("still starting: %v", r.starting)
			}
			if r.sandboxes["pod1"] == nil {
				if _, err := os.Lstat(r.sandboxPath("pod1")); !os.IsNotExist(err) {
					t.Errorf("the record of a sandbox that is not known: %v", err)
				}
			}
			if err := r.removeSandboxFiles("pod1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestInitEndsBeforeSandboxIsKnown checks each way in which the runtime learns of the end of an init process, after the start of the
// process and before the sandbox is added to the known ones.
func TestInitEndsBeforeSandboxIsKnown(t *testing.T) {
	for name, end := range map[string]func(r *Runtime, s *sandbox){
		"a shim reports it": func(r *Runtime, s *sandbox) { r.handleEnd(s.rec.ID, s.pid, wire.Exit{}) },
		"an init process of an earlier sandbox of this ID ended": func(r *Runtime, s *sandbox) { r.handleEnd(s.rec.ID, s.pid-1, wire.Exit{}) },
		"the shim dies":            func(r *Runtime, s *sandbox) { r.shims.onGone(r.shims.groups["1"]) },
		"the containerd shim dies": func(r *Runtime, s *sandbox) { r.tasksGone(s) },
		"nothing of it ends: its shim dies before the init begins, and another one starts it": func(r *Runtime, s *sandbox) {
			s.initBegun = false
			r.shims.onGone(r.shims.groups["1"])
		},
		"nothing of it ends": func(*Runtime, *sandbox) {},
		"an earlier sandbox of this ID loses its shim": func(r *Runtime, s *sandbox) {
			earlier := sharedPIDSandbox(s.rec.ID)
			r.endPodOfShim(s.rec.ID, earlier)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := shimRuntime(t)
			s, old := sharedPIDSandbox("pod1"), sharedPIDSandbox("pod1")
			old.ready, old.rec.Stopped = false, true
			s.pid, s.initBegun = 2147483647, true
			r.sandboxes["pod1"], r.starting["pod1"] = old, s
			r.shims.assignSandbox("pod1", false)
			end(r, s)
			r.tasks.Wait()
			err := r.addSandbox(s)
			survives := strings.HasPrefix(name, "nothing of it") || strings.Contains(name, "an earlier sandbox of this ID")
			if survives != (err == nil) || s.ready != survives || survives != (s.pid > 0) || r.sandboxes["pod1"] != s {
				t.Errorf("%v; ready: %v, init process: %d", err, s.ready, s.pid)
			}
		})
	}
}
