package taskshim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// Config is what New needs.
type Config struct {
	ID         string // of the sandbox, and of its first container
	Program    string // the shim's path
	ConfigFile string // for the shim; may be empty
	Bundles    string // each container's bundle is below it, by its ID
	Sockets    string // directory for the shim's socket
	Events     string // socket of an Events
	OCI        wire.OCI
	// Streams is one of our own shims, started if need be. Connected is the same if
	// it runs, else nil.
	Streams   func(context.Context) (*shim.Client, error)
	Connected func() *shim.Client
	// Ended is called for each container that ends, and Gone once when the shim has
	// died. They must not call back before they return.
	Ended  func(wire.Container)
	Gone   func()
	OOM    func(id string) bool // whether a shim has said so of a container
	Logger *slog.Logger
}

// A Shim is the containerd shim of one sandbox. Its methods may be called at once.
type Shim struct {
	c Config

	mu      sync.Mutex
	client  *ttrpc.Client // nil: not connected
	service string        // name of the task API
	socket  string
	pid     int           // 0: not known
	gone    chan struct{} // closed when the connection has ended
	log     *os.File      // what the shim logs
	closed  bool
	waits   sync.WaitGroup
}

// New starts nothing: Start or Load does.
func New(c Config) *Shim { return &Shim{c: c} }

// Connected says whether the shim runs.
func (s *Shim) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

// call calls the task API. Both versions have the same messages.
func (s *Shim) call(ctx context.Context, method string, req, resp proto.Message) error {
	s.mu.Lock()
	client, service := s.client, s.service
	s.mu.Unlock()
	if client == nil {
		return ErrGone
	}
	err := client.Call(namespaces.WithNamespace(ctx, Namespace), service, method, req, resp)
	if errors.Is(err, ttrpc.ErrClosed) {
		return ErrGone
	}
	return errgrpc.ToNative(err)
}

// lost is called when the connection has ended.
func (s *Shim) lost() {
	s.mu.Lock()
	was := s.client != nil && !s.closed
	s.client = nil
	s.hushed()
	close(s.gone)
	s.mu.Unlock()
	if was {
		os.Remove(s.socket)
		s.c.Gone()
	}
}

// Close hangs up, and returns when nothing is called back any more. The shim and its
// containers go on.
func (s *Shim) Close() {
	s.mu.Lock()
	s.closed = true
	client := s.client
	s.client = nil
	s.hushed()
	s.mu.Unlock()
	if client != nil {
		client.Close()
	}
	s.waits.Wait()
}

// shutdownTime is how long a shim may take to end.
const shutdownTime = 10 * time.Second

// Shutdown ends a shim whose containers are deleted. One that is gone is success.
func (s *Shim) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true // its end is wanted
	gone, running := s.gone, s.client != nil
	s.mu.Unlock()
	defer s.Close()
	if !running {
		s.kill() // one that did not answer
		return nil
	}
	err := s.call(ctx, "Shutdown", &task.ShutdownRequest{ID: s.c.ID}, &emptypb.Empty{})
	if err != nil && !errdefs.IsUnavailable(err) { // it may end before it answers
		return err
	}
	select {
	case <-gone:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(shutdownTime):
		s.kill()
	}
	os.Remove(s.socket)
	return nil
}

// listen reads what the shim logs, which waits for a reader before it starts.
func (s *Shim) listen() error {
	path := filepath.Join(s.c.Bundles, s.c.ID, "log")
	if err := makeFIFO(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // a writer too: it never ends
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.hushed()
	s.log = f
	s.mu.Unlock()
	go func() {
		for in := bufio.NewReaderSize(f, 4<<10); ; {
			line, err := in.ReadSlice('\n')
			if text := strings.TrimSpace(string(line)); text != "" {
				s.c.Logger.Debug("a containerd shim says", "sandbox", s.c.ID, "line", text)
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
	}()
	return nil
}

// hushed stops listening. mu is held.
func (s *Shim) hushed() {
	if s.log != nil {
		s.log.Close()
		s.log = nil
	}
}

// options are what a shim is configured by: containerd-shim-runc runs the node's OCI
// runtime, any other reads a file of its own.
func (s *Shim) options() *anypb.Any {
	name := strings.TrimPrefix(filepath.Base(s.c.Program), "containerd-shim-")
	var m proto.Message = &runtimeoptions.Options{
		TypeUrl: "io.containerd." + strings.ReplaceAll(name, "-", ".") + ".options", ConfigPath: s.c.ConfigFile,
	}
	if IsRunc(s.c.Program) {
		m = &options.Options{BinaryName: s.c.OCI.Path, Root: s.c.OCI.Root, SystemdCgroup: s.c.OCI.Systemd}
	}
	return pack(m)
}

// IsRunc says whether a shim is containerd-shim-runc, which runs an OCI runtime.
func IsRunc(program string) bool { return strings.Contains(filepath.Base(program), "shim-runc-") }

// pack encodes a message as shims expect it: its type is named without a host.
func pack(m proto.Message) *anypb.Any {
	b, err := proto.Marshal(m)
	if err != nil { // these messages hold plain text only
		return nil
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}

// Attach connects streams to a container.
func (s *Shim) Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer, resize <-chan shim.Size) error {
	client := s.c.Connected()
	if client == nil {
		return ErrGone
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if stdin != nil && s.closesStdin(id) {
		defer s.closeStdin(context.WithoutCancel(ctx), id, "")
		stdin = &endReader{stdin, func() { s.closeStdin(ctx, id, "") }}
	}
	return client.AttachHeld(ctx, id, stdin, stdout, stderr, func() { s.resize(ctx, id, "", resize) })
}

// An endReader calls end before it says that its reader has ended.
type endReader struct {
	io.Reader
	end func()
}

func (r *endReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		r.end()
	}
	return n, err
}

// ReopenLog opens a container's log file anew.
func (s *Shim) ReopenLog(ctx context.Context, id string) error {
	client := s.c.Connected()
	if client == nil {
		return ErrGone
	}
	return client.ReopenLog(ctx, id)
}

// letGo ends the streams of a container, after its last output, and says whether the
// kernel killed it for memory.
func (s *Shim) letGo(ctx context.Context, id string) (oom bool) {
	client := s.c.Connected()
	if client == nil {
		return false
	}
	h, err := client.LetGo(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		s.c.Logger.Warn("the streams of a container were not let go", "container", id, "error", fmt.Errorf("ask the shim: %w", err))
	}
	return h.OOM
}
