package taskshim

import (
	"bufio"
	"context"
	"errors"
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

// Config configures New.
type Config struct {
	ID         string // ID of the sandbox and of its first container
	Program    string // path of the shim program
	ConfigFile string // configuration file of the shim; may be empty
	Bundles    string // directory of the bundles; a bundle has the name of the container ID
	Sockets    string // directory for the shim's socket
	Events     string // path of the socket of Events
	OCI        wire.OCI
	// Streams returns the islet shim that serves the streams, and starts it if necessary. Connected
	// returns the same shim if it is running, otherwise nil.
	Streams   func(context.Context) (*shim.Client, error)
	Connected func() *shim.Client
	// Ended is called for each container that has ended. Gone is called once when the connection is
	// lost. Neither may call methods of the Shim.
	Ended  func(wire.Container)
	Gone   func()
	OOM    func(id string) bool // Events.OOM
	Logger *slog.Logger
}

// A Shim is the containerd shim of one sandbox. Its methods are safe for concurrent use.
type Shim struct {
	c Config

	mu      sync.Mutex
	client  *ttrpc.Client // nil if not connected
	service string        // ttrpc service name of the task API
	socket  string
	pid     int           // 0 if unknown
	gone    chan struct{} // closed when the connection has ended
	log     *os.File      // FIFO of the shim's log
	closed  bool
	waits   sync.WaitGroup
	// starting contains the containers that the shim is creating or starting. running contains the containers for whose end waitForEnd
	// waits.
	starting, running map[string]bool
}

// New returns a Shim that is not running. Call Start or Load next.
func New(c Config) *Shim { return &Shim{c: c, starting: map[string]bool{}, running: map[string]bool{}} }

// Connected reports whether there is a connection to the shim.
func (s *Shim) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

// call calls a method of the task API. Versions 2 and 3 have the same messages. A call ends with ctx, unless the shim has stopped reading
// and the buffers of the socket are full. Every further call would then block, so the shim is abandoned after commandTimeout.
func (s *Shim) call(ctx context.Context, method string, req, resp proto.Message) error {
	s.mu.Lock()
	client, service := s.client, s.service
	s.mu.Unlock()
	if client == nil {
		return ErrGone
	}
	returned := make(chan struct{})
	defer close(returned)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-returned:
		case <-time.After(commandTimeout):
			s.Abandon()
		}
	})()
	err := client.Call(namespaces.WithNamespace(ctx, Namespace), service, method, req, resp)
	if errors.Is(err, ttrpc.ErrClosed) {
		return ErrGone
	}
	return errgrpc.ToNative(err)
}

// handleDisconnect is called when the connection has ended.
func (s *Shim) handleDisconnect() {
	s.mu.Lock()
	lost := s.client != nil && !s.closed
	s.client = nil
	s.closeLog()
	close(s.gone)
	s.mu.Unlock()
	if lost {
		os.Remove(s.socket)
		s.c.Gone()
	}
}

// Close closes the connection and waits until no callback is running. The shim and its containers
// continue to run.
func (s *Shim) Close() {
	s.mu.Lock()
	s.closed = true
	client := s.client
	s.client = nil
	s.closeLog()
	s.mu.Unlock()
	if client != nil {
		client.Close()
	}
	s.waits.Wait()
}

// shutdownTimeout is how long a shim may take to exit after Shutdown.
const shutdownTimeout = 10 * time.Second

// Shutdown ends a shim whose containers are deleted. It returns no error if the shim is not
// running.
func (s *Shim) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true // do not call Gone
	gone, running := s.gone, s.client != nil
	s.mu.Unlock()
	defer s.Close()
	if !running {
		s.kill() // it may be running but not responding
		return nil
	}
	err := s.call(ctx, "Shutdown", &task.ShutdownRequest{ID: s.c.ID}, &emptypb.Empty{})
	if err != nil && !errdefs.IsUnavailable(err) { // the shim may exit before it replies
		return err
	}
	select {
	case <-gone:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(shutdownTimeout):
		s.kill()
	}
	os.Remove(s.socket)
	return nil
}

// copyLog copies the shim's log FIFO to the logger. The shim does not start until the FIFO has a
// reader.
func (s *Shim) copyLog() error {
	path := filepath.Join(s.c.Bundles, s.c.ID, "log")
	if err := makeFIFO(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // O_RDWR: without a writer, reads would return EOF
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.closeLog()
	s.log = f
	s.mu.Unlock()
	go func() {
		for in := bufio.NewReaderSize(f, 4<<10); ; {
			line, err := in.ReadSlice('\n')
			if text := strings.TrimSpace(string(line)); text != "" {
				s.c.Logger.Debug("log line of a containerd shim", "sandbox", s.c.ID, "line", text)
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
	}()
	return nil
}

// closeLog stops reading the log. The caller holds mu.
func (s *Shim) closeLog() {
	if s.log != nil {
		s.log.Close()
		s.log = nil
	}
}

// runtimeOptions returns the runtime options for the shim: the OCI runtime of the node for
// containerd-shim-runc, and the path of the configuration file for any other shim.
func (s *Shim) runtimeOptions() *anypb.Any {
	name := strings.TrimPrefix(filepath.Base(s.c.Program), "containerd-shim-")
	var m proto.Message = &runtimeoptions.Options{
		TypeUrl: "io.containerd." + strings.ReplaceAll(name, "-", ".") + ".options", ConfigPath: s.c.ConfigFile,
	}
	if IsRunc(s.c.Program) {
		m = &options.Options{BinaryName: s.c.OCI.Path, Root: s.c.OCI.Root, SystemdCgroup: s.c.OCI.Systemd}
	}
	return encodeAny(m)
}

// IsRunc reports whether program is a version of containerd-shim-runc, which calls an OCI runtime.
func IsRunc(program string) bool { return strings.Contains(filepath.Base(program), "shim-runc-") }

// encodeAny encodes a message as shims expect it: the type URL is the name of the message without a
// prefix.
func encodeAny(m proto.Message) *anypb.Any {
	b, err := proto.Marshal(m)
	if err != nil { // impossible: the strings are valid UTF-8
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
	return client.AttachHeld(ctx, id, stdin, stdout, stderr, func() { s.forwardSizes(ctx, id, "", resize) })
}

// An endReader is a reader that calls the function end at the end of the input or after an error.
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

// ReopenLog reopens a container's log file.
func (s *Shim) ReopenLog(ctx context.Context, id string) error {
	client := s.c.Connected()
	if client == nil {
		return ErrGone
	}
	return client.ReopenLog(ctx, id)
}

// letGo makes islet's shim complete the log of an ended container and release its streams. oom
// reports whether the OOM killer killed a process of the container. If islet's shim does not respond, letGo returns after streamsTimeout.
// Otherwise the end of the container would never be reported.
func (s *Shim) letGo(ctx context.Context, id string) (oom bool) {
	client := s.c.Connected()
	if client == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, streamsTimeout)
	defer cancel()
	h, err := client.LetGo(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		s.c.Logger.Warn("the streams of a container were not released by their shim", "container", id, "error", err)
	}
	return h.OOM
}
