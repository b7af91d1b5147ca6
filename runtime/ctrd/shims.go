package ctrd

import (
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

// shims are the shim processes and which sandboxes each serves. A sandbox joins
// one for good; its process starts with the first container, and again should it
// have died. One that no sandbox is in is ended.
type shims struct {
	r *Runtime

	mu     sync.Mutex
	groups map[string]*group
	of     map[string]string // group by sandbox
	closed bool
}

// A group is one shim. mu serialises starting it.
type group struct {
	name   string
	pods   map[string]bool // guarded by shims.mu, as is client
	client *shim.Client    // nil: not connected

	mu sync.Mutex
}

func newShims(r *Runtime) *shims {
	return &shims{r: r, groups: map[string]*group{}, of: map[string]string{}}
}

func (s *shims) socket(name string) string { return filepath.Join(s.r.dirs.sockets, name) }

// join finds room for a sandbox, which may be in a shim already, and returns the
// shim's name. Those that only hold streams are apart.
func (s *shims) join(sandbox string, streams bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name, ok := s.of[sandbox]; ok {
		return name
	}
	for i := 1; ; i++ { // the fullest first: low names fill up before high ones
		name := strconv.Itoa(i)
		if streams {
			name = "t" + name
		}
		if g := s.groups[name]; g == nil || len(g.pods) < max(s.r.c.ShimPods, 1) {
			s.put(sandbox, name)
			return name
		}
	}
}

// put puts a sandbox into a shim. mu is held.
func (s *shims) put(sandbox, name string) {
	g := s.groups[name]
	if g == nil {
		g = &group{name: name, pods: map[string]bool{}}
		s.groups[name] = g
	}
	g.pods[sandbox] = true
	s.of[sandbox] = name
}

// leave takes a sandbox out of its shim, and ends the shim if it was the last.
func (s *shims) leave(sandbox string) {
	s.mu.Lock()
	g := s.groups[s.of[sandbox]]
	if g == nil {
		s.mu.Unlock()
		return
	}
	delete(s.of, sandbox)
	delete(g.pods, sandbox)
	if len(g.pods) > 0 {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	g.mu.Lock() // not while it starts
	defer g.mu.Unlock()
	s.mu.Lock()
	empty := len(g.pods) == 0
	if empty {
		delete(s.groups, g.name)
	}
	client := g.client
	s.mu.Unlock()
	if empty {
		s.end(g.name, client)
	}
}

// end asks a shim without containers to end.
func (s *shims) end(name string, client *shim.Client) {
	if client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cleanup)
		defer cancel()
		if err := client.Shutdown(ctx); err != nil {
			// Its pods are gone. Without its socket nobody would find it again.
			s.r.log.Warn("an unused shim did not end, and is killed", "shim", name, "error", err)
			client.Abandon()
		} else {
			client.Close()
		}
	}
	os.Remove(s.socket(name))
	os.Remove(s.socket(name) + ".log")
}

// connected returns the client of a shim that is there, or nil.
func (s *shims) connected(name string) *shim.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[name]; g != nil {
		return g.client
	}
	return nil
}

// client returns the client of a shim, which is started if it does not run.
func (s *shims) client(ctx context.Context, name string) (*shim.Client, error) {
	if c := s.connected(name); c != nil {
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
	if c := s.connected(name); c != nil {
		return c, nil
	}
	if err := shim.Start(s.r.c.ShimPath, s.socket(name), s.r.hidden); err != nil {
		return nil, err
	}
	return s.connect(ctx, g)
}

// connect connects to a shim that listens.
func (s *shims) connect(ctx context.Context, g *group) (*shim.Client, error) {
	s.mu.Lock() // so that gone, however soon, comes after
	defer s.mu.Unlock()
	c, err := shim.Dial(ctx, s.socket(g.name),
		func(e wire.Container) {
			if e.Exit != nil {
				s.r.ended(e.ID, *e.Exit)
			}
		},
		func() { s.gone(g) })
	if err != nil {
		return nil, err
	}
	g.client = c
	s.cutLog(g, c)
	return c, nil
}

const (
	// maxShimLog is how many bytes of its own log a shim may keep, which lies in memory. Shims
	// keep theirs below that themselves, but for those that an older islet started.
	maxShimLog  = 1 << 20
	cutShimLogs = 10 * time.Minute
)

// cutLog empties the log of a shim that does not bound it, from time to time while c is its client.
func (s *shims) cutLog(g *group, c *shim.Client) {
	path := s.socket(g.name) + ".log"
	if st, err := os.Lstat(path); err == nil && st.Size() > maxShimLog {
		if err := os.Truncate(path, 0); err != nil {
			s.r.log.Warn("the log of a shim is not cut", "file", path, "error", err)
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

// gone ends the containers of a shim that has died.
func (s *shims) gone(g *group) {
	s.mu.Lock()
	g.client = nil
	pods := make([]string, 0, len(g.pods))
	for id := range g.pods {
		pods = append(pods, id)
	}
	closed := s.closed
	s.mu.Unlock()
	if closed || len(pods) == 0 {
		return
	}
	s.r.log.Error("a shim has died: its containers are ended", "shim", g.name, "pods", len(pods))
	for _, id := range pods {
		s.r.tasks.Go(func() { s.r.shimLost(id) })
	}
}

// shimLost ends what of a sandbox ran in a shim that has died.
func (r *Runtime) shimLost(sandbox string) {
	for _, c := range r.containersOf(sandbox) {
		r.lost(c)
	}
	r.mu.Lock()
	s := r.sandboxes[sandbox]
	hasInit := s != nil && s.pid > 0
	r.mu.Unlock()
	if hasInit {
		r.initEnded(s)
	}
}

// names lists the shims whose socket is there.
func (s *shims) names() ([]string, error) {
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

// endUnused ends the shims that no sandbox is in.
func (s *shims) endUnused() {
	s.mu.Lock()
	unused := map[string]*shim.Client{}
	for name, g := range s.groups {
		if len(g.pods) == 0 {
			unused[name] = g.client
			delete(s.groups, name)
		}
	}
	s.mu.Unlock()
	for name, client := range unused {
		s.end(name, client)
	}
}

func (s *shims) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[name] != nil
}

// close hangs up on all shims; their containers run on.
func (s *shims) close() {
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
