package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

const (
	// idleTimeout is how long a shim without containers and connections continues to run.
	idleTimeout = time.Minute
	// quietTime is the time without a change of containers and connections after which the shim returns
	// free memory to the kernel. This takes a millisecond.
	quietTime = 10 * time.Second
)

var (
	errNotFound = errors.New("no such container")
	errConflict = errors.New("conflict")
)

// A Server runs containers and serves connections.
type Server struct {
	log    *slog.Logger
	reaper *reaper
	// compressor compresses rotated logs.
	compressor *compressor
	host       *Host // nil if this process runs in the host's mount namespace

	mu              sync.Mutex
	containers      map[string]*container
	conns           map[*conn]struct{}
	accepted        uint64        // number of connections that were accepted
	changed         chan struct{} // capacity 1; receives a value when connections or containers have changed
	stopWhenIdle    bool          // whether StopWhenIdle was called
	closing         bool          // whether shutdown was called
	attachedClients int           // number of attached clients
	stop            context.CancelFunc

	// A new agent first lists the containers. The list must remain valid: listContainers waits for signals and, with a limit, for starts
	// that are in progress. Later requests of the previous agent are rejected, and its later starts are discarded.
	takeover sync.RWMutex // write-locked by listContainers, read-locked by signals, and at the begin and the end of a start
	owner    *conn        // guarded by takeover; connection of the current agent, or nil before the first list
}

// New returns a Server that is not running. There is no Host if this process runs in the host's mount namespace.
func New(log *slog.Logger, host *Host) *Server {
	s := &Server{
		log: log, reaper: newReaper(), host: host,
		containers: map[string]*container{}, conns: map[*conn]struct{}{},
		changed: make(chan struct{}, 1),
	}
	s.compressor = &compressor{compress: s.compressLog}
	return s
}

// Run serves l until ctx ends, a client calls Shutdown, or the shim has had neither containers nor connections for idleTimeout. Containers
// continue to run after it has returned.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	ctx, s.stop = context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer s.stop()
	loops.Go(func() { s.reaper.run(ctx) })
	loops.Go(func() { s.endWhenIdle(ctx) })
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		go s.serveConn(s.addConn(c))
	}
}

// StopWhenIdle makes Run return once no container is running. It is called on SIGTERM, which init
// sends to all processes when the machine shuts down.
func (s *Server) StopWhenIdle() {
	s.mu.Lock()
	s.stopWhenIdle = true
	s.mu.Unlock()
	s.noteChange()
}

// endWhenIdle ends the shim in three cases: the shim has had neither containers nor connections for idleTimeout; StopWhenIdle was called
// and no container is running; shutdown was called and no client is attached. If nothing has changed for quietTime, it returns free memory
// to the kernel.
func (s *Server) endWhenIdle(ctx context.Context) {
	for {
		var due <-chan time.Time
		s.mu.Lock()
		end := s.stopWhenIdle && !s.anyRunning() || s.closing && s.attachedClients == 0
		if len(s.containers) == 0 && len(s.conns) == 0 && s.attachedClients == 0 {
			due = time.After(idleTimeout)
		}
		s.mu.Unlock()
		if end {
			s.stop()
			return
		}
		rest := time.After(quietTime)
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				return
			case <-s.changed:
				changed = true
			case <-rest:
				debug.FreeOSMemory()
			case <-due:
				s.stop()
				return
			}
		}
	}
}

// anyRunning reports whether a container is running or being started. The caller holds mu.
func (s *Server) anyRunning() bool {
	for _, c := range s.containers {
		if c.toWire().Exit == nil {
			return true
		}
	}
	return false
}

func (s *Server) noteChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// handleCall handles one request. It returns the body of the reply.
func (s *Server) handleCall(c *conn, method string, body json.RawMessage) (any, error) {
	switch method {
	case wire.MethodRun:
		return decode(body, func(r wire.RunRequest) (wire.Running, error) { return s.runContainer(c, r) })
	case wire.MethodKill:
		return decode(body, func(r wire.KillRequest) (any, error) { return s.killContainer(c, r) })
	case wire.MethodDelete:
		return decode(body, s.removeContainer)
	case wire.MethodList:
		return s.listContainers(c)
	case wire.MethodReopen:
		return decode(body, s.reopen)
	case wire.MethodHold:
		return decode(body, func(r wire.RunRequest) (any, error) { return nil, s.holdContainer(c, r) })
	case wire.MethodLetGo:
		return decode(body, s.letGo)
	case wire.MethodShutdown:
		return nil, s.shutdown()
	}
	return nil, fmt.Errorf("the shim does not support the method %q", method)
}

// checkOwner returns an error if c is the connection of an agent that another agent has replaced.
// The caller holds takeover.
func (s *Server) checkOwner(c *conn) error {
	if s.owner != nil && s.owner != c {
		return fmt.Errorf("%w: another agent has taken over", errConflict)
	}
	return nil
}

// decode decodes the body of a request and passes it to the function f.
func decode[Req, Res any](body json.RawMessage, f func(Req) (Res, error)) (any, error) {
	var r Req
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	return f(r)
}

func (s *Server) findContainer(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[id]
	if c == nil || c.pid == 0 { // missing, or not started yet
		return nil, fmt.Errorf("%s: %w", id, errNotFound)
	}
	return c, nil
}

// takeoverTimeout is how long the list for a new agent waits for starts that the previous agent requested. After that, the commands of the
// OCI runtime are killed, and the list waits once more. The list does not contain containers whose start is then still in progress. When
// such a start ends, its container is removed. An agent waits 30 s for the list.
const takeoverTimeout = 8 * time.Second

// listContainers makes the agent of a connection the owner, and returns the containers. It returns an error if a later connection is the
// owner: the list for a dead agent may still wait when the next agent already has its list.
func (s *Server) listContainers(c *conn) ([]wire.Container, error) {
	if !s.awaitStarts() {
		s.reaper.endCalls()
		s.awaitStarts()
	}
	if err := s.setOwner(c); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]wire.Container, 0, len(s.containers))
	for _, c := range s.containers {
		if c.pid != 0 {
			out = append(out, c.toWire())
		}
	}
	return out, nil
}

func (s *Server) setOwner(c *conn) error {
	s.takeover.Lock()
	defer s.takeover.Unlock()
	if s.owner == nil || c.number > s.owner.number {
		s.owner = c
	}
	return s.checkOwner(c)
}

// awaitStarts waits until the starts that are in progress have ended, for at most takeoverTimeout. It does not wait for starts that will be
// discarded. It returns false if the time was too short.
func (s *Server) awaitStarts() bool {
	s.takeover.RLock()
	owner := s.owner
	s.takeover.RUnlock()
	var starts []*container
	s.mu.Lock()
	for _, c := range s.containers {
		if c.pid == 0 && (owner == nil || c.by == owner) {
			starts = append(starts, c)
		}
	}
	s.mu.Unlock()
	timeout := time.NewTimer(takeoverTimeout)
	defer timeout.Stop()
	for _, c := range starts {
		select {
		case <-c.settled:
		case <-timeout.C:
			return false
		}
	}
	return true
}

func (s *Server) reopen(r wire.Target) (any, error) {
	c, err := s.findContainer(r.ID)
	if err != nil || c.log == nil {
		return nil, err
	}
	return nil, c.log.Reopen()
}

// shutdown makes Run return after the reply was sent and every attached client has received the
// rest of its output.
func (s *Server) shutdown() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.containers); n > 0 {
		return fmt.Errorf("%w: the shim still has %d containers", errConflict, n)
	}
	time.AfterFunc(10*time.Millisecond, func() { // after the reply
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		s.noteChange()
	})
	return nil
}
