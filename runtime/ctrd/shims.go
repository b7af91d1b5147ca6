package ctrd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// shimSet contains the shim processes and their sandboxes. A sandbox keeps its shim until it is removed. The shim process is started for
// the first container, and again after it has died. A shim without sandboxes is shut down.
type shimSet struct {
	r *Runtime

	mu      sync.Mutex
	groups  map[string]*shimGroup
	groupOf map[string]string // group name by sandbox
	closed  bool
}

// A shimGroup is one shim and its sandboxes. mu serializes starts of the process.
type shimGroup struct {
	name   string
	pods   map[string]bool // guarded by shims.mu, as is client
	client *shim.Client    // nil if it is not connected
	// noNewPods reports whether new sandboxes do not join the shim; see whyNoNewPods. shims.mu guards it.
	noNewPods bool
	// ending is true while the shim is shut down. The name stays in use until the socket is removed, so that no new shim listens at the
	// same path. New sandboxes do not join such a shim. shims.mu guards it.
	ending bool

	mu sync.Mutex
}

func newShims(r *Runtime) *shimSet {
	return &shimSet{r: r, groups: map[string]*shimGroup{}, groupOf: map[string]string{}}
}

func (s *shimSet) socketPath(name string) string { return filepath.Join(s.r.dirs.sockets, name) }

// assignSandbox returns the name of a sandbox's shim. If the sandbox has none yet, it is assigned to a shim that has room. If a containerd
// shim runs the containers, the shim of islet only serves their streams. Such shims run no containers, and their names begin with "t".
func (s *shimSet) assignSandbox(sandbox string, streams bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name, ok := s.groupOf[sandbox]; ok {
		return name
	}
	for i := 1; ; i++ { // prefer low numbers, so that a few shims are full instead of many half empty
		name := strconv.Itoa(i)
		if streams {
			name = "t" + name
		}
		if g := s.groups[name]; g == nil || len(g.pods) < max(s.r.c.ShimPods, 1) && !g.noNewPods && !g.ending {
			s.put(sandbox, name)
			return name
		}
	}
}

// put assigns a sandbox to a shim. The caller holds mu.
func (s *shimSet) put(sandbox, name string) {
	g := s.groups[name]
	if g == nil {
		g = &shimGroup{name: name, pods: map[string]bool{}}
		s.groups[name] = g
	}
	g.pods[sandbox] = true
	s.groupOf[sandbox] = name
}

// removeSandbox removes a sandbox from its shim. If the shim has no other sandbox, the shim is shut down.
func (s *shimSet) removeSandbox(sandbox string) {
	s.mu.Lock()
	g := s.groups[s.groupOf[sandbox]]
	if g == nil {
		s.mu.Unlock()
		return
	}
	delete(s.groupOf, sandbox)
	delete(g.pods, sandbox)
	if len(g.pods) > 0 {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.endIfEmpty(g)
}

// endIfEmpty shuts down a shim that has no sandboxes. The name of the shim is free for another shim when the shutdown is complete.
func (s *shimSet) endIfEmpty(g *shimGroup) {
	g.mu.Lock() // wait for a start in progress
	defer g.mu.Unlock()
	s.mu.Lock()
	if len(g.pods) > 0 || g.ending {
		s.mu.Unlock()
		return
	}
	g.ending = true
	client := g.client
	s.mu.Unlock()
	s.shutdownShim(g.name, client)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, g.name)
}

// shutdownShim shuts down a shim that has no containers.
func (s *shimSet) shutdownShim(name string, client *shim.Client) {
	if client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := client.Shutdown(ctx); err != nil {
			// Its pods have ended. Without its socket, which is removed below, the process could not be found again.
			s.r.log.Warn("an unused shim did not shut down and is killed", "shim", name, "error", err)
			client.Abandon()
		} else {
			client.Close()
		}
	}
	os.Remove(s.socketPath(name))
	os.Remove(s.socketPath(name) + ".log")
}

// connectedClient returns the client of a shim, or nil if it is not connected.
func (s *shimSet) connectedClient(name string) *shim.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[name]; g != nil {
		return g.client
	}
	return nil
}

// startClient returns the client of a shim and starts the process if it is not running.
func (s *shimSet) startClient(ctx context.Context, name string) (*shim.Client, error) {
	if c := s.connectedClient(name); c != nil {
		return c, nil
	}
	s.mu.Lock()
	g := s.groups[name]
	s.mu.Unlock()
	if g == nil {
		return nil, fmt.Errorf("shim %s: %w", name, shim.ErrGone)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.mu.Lock()
	c, ending := g.client, g.ending
	s.mu.Unlock()
	switch {
	case ending: // the caller's sandbox was removed, and the name may belong to another shim
		return nil, fmt.Errorf("shim %s: %w", name, shim.ErrGone)
	case c != nil:
		return c, nil
	}
	if err := shim.Start(s.r.c.ShimPath, s.socketPath(name), s.r.hidden); err != nil {
		return nil, err
	}
	s.mu.Lock()
	g.noNewPods = false
	s.mu.Unlock()
	return s.connect(ctx, g)
}

// connect connects to a listening shim.
func (s *shimSet) connect(ctx context.Context, g *shimGroup) (*shim.Client, error) {
	s.mu.Lock() // onGone must not run before g.client is set
	defer s.mu.Unlock()
	c, err := shim.Dial(ctx, s.socketPath(g.name),
		func(e wire.Container) {
			if e.Exit != nil {
				s.r.handleEnd(e.ID, e.Pid, *e.Exit)
			}
		},
		func() { s.onGone(g) })
	if err != nil {
		return nil, err
	}
	g.client = c
	s.cutLog(g, c)
	return c, nil
}

const (
	// maxShimLog is the maximum size of a shim's own log, in bytes. The log is in memory. Shims
	// limit the size of this log themselves, except shims that an earlier version of islet started.
	maxShimLog  = 1 << 20
	cutShimLogs = 10 * time.Minute
)

// cutLog truncates the log of a shim that does not limit it itself. It repeats this every
// cutShimLogs until c is no longer the shim's client.
func (s *shimSet) cutLog(g *shimGroup, c *shim.Client) {
	path := s.socketPath(g.name) + ".log"
	if st, err := os.Lstat(path); err == nil && st.Size() > maxShimLog {
		if err := os.Truncate(path, 0); err != nil {
			s.r.log.Warn("the log of a shim could not be truncated", "file", path, "error", err)
		}
	}
	time.AfterFunc(cutShimLogs, func() {
		s.mu.Lock()
		same := g.client == c && !s.closed
		s.mu.Unlock()
		if same {
			s.cutLog(g, c)
		}
	})
}

// onGone ends the containers of a shim that has died. A sandbox whose init has not begun to start loses nothing: startInit starts another
// shim.
func (s *shimSet) onGone(g *shimGroup) {
	s.mu.Lock()
	g.client = nil
	pods := make(map[string]*sandbox, len(g.pods))
	s.r.mu.Lock()
	for id := range g.pods {
		if starting := s.r.starting[id]; starting == nil || starting.initBegun {
			pods[id] = cmp.Or(starting, s.r.sandboxes[id])
		} else {
			pods[id] = nil
		}
	}
	s.r.mu.Unlock()
	closed := s.closed
	s.mu.Unlock()
	if closed || len(pods) == 0 {
		return
	}
	s.r.log.Error("a shim has died: its containers are ended", "shim", g.name, "pods", len(pods))
	for id, sandbox := range pods {
		s.r.tasks.Go(func() { s.r.endPodOfShim(id, sandbox) })
	}
}

// endPodOfShim ends the containers and the init of a sandbox whose shim has died. s is nil if no init of the sandbox has begun. It is not a
// sandbox that was created with the same ID after the end of the shim.
func (r *Runtime) endPodOfShim(id string, s *sandbox) {
	for _, c := range r.containersOf(id) {
		r.endWithLostShim(c)
	}
	if s != nil && s.hasInit() {
		r.handleInitEnd(s)
	}
}

// listSockets returns the names of the shims whose socket exists.
func (s *shimSet) listSockets() ([]string, error) {
	entries, err := os.ReadDir(s.r.dirs.sockets)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// endUnused shuts down the shims that have no sandbox.
func (s *shimSet) endUnused() {
	s.mu.Lock()
	groups := make([]*shimGroup, 0, len(s.groups))
	for _, g := range s.groups {
		groups = append(groups, g)
	}
	s.mu.Unlock()
	for _, g := range groups {
		s.endIfEmpty(g)
	}
}

func (s *shimSet) hasShim(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[name] != nil
}

// close closes the connections to all shims. Their containers continue to run.
func (s *shimSet) close() {
	s.mu.Lock()
	s.closed = true
	var clients []*shim.Client
	for _, g := range s.groups {
		if g.client != nil {
			clients = append(clients, g.client)
		}
	}
	s.mu.Unlock()
	for _, c := range clients {
		c.Close()
	}
}
