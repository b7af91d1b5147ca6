package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/crilog"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// lastOutput is how long a process that escaped a container which has ended, and goes on
// writing, is followed. What the container itself wrote is never cut off.
const lastOutput = 3 * time.Second

// A container is one that was started here. Fields but exit are set before it
// can be found with a pid, and not changed after.
type container struct {
	req     wire.RunRequest
	pid     int // 0: not started yet; held: another program runs it
	started time.Time
	cgroup  cgroup
	log     *crilog.Log // nil: no log is wanted
	io      *streams

	mu    sync.Mutex
	exit  *wire.Exit    // nil while it runs
	ended chan struct{} // closed when exit is set
}

func (c *container) info() wire.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid == held {
		return wire.Container{ID: c.req.ID, Held: true}
	}
	return wire.Container{ID: c.req.ID, Running: wire.Running{Pid: c.pid, StartedAt: c.started}, Exit: c.exit}
}

// supervise waits for the end of a container and makes it known: first its log is
// complete, then its exit is written to the bundle, then the agent is told.
func (s *Server) supervise(c *container, status <-chan unix.WaitStatus) {
	st := <-status
	exit := wire.Exit{Code: exitCode(st), StartedAt: c.started, FinishedAt: time.Now()}
	if c.req.KillAll {
		if err := c.cgroup.killAll(); err != nil {
			s.log.Warn("processes of a container that ended were not killed", "container", c.req.ID, "error", err)
		}
	}
	c.io.finish(lastOutput)
	if c.log != nil {
		c.log.Close()
	}
	exit.OOM = exit.Code != 0 && c.cgroup.oomKilled()
	if err := writeExit(c.req.Bundle, exit); err != nil {
		s.log.Warn("exit of a container was not written", "container", c.req.ID, "error", err)
	}
	c.mu.Lock()
	c.exit = &exit
	close(c.ended)
	c.mu.Unlock()
	s.tell(c.info())
	s.note()
}

// writeExit leaves the exit where an agent finds it when this shim is gone.
func writeExit(bundle string, e wire.Exit) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path := filepath.Join(bundle, wire.ExitFile)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func (s *Server) kill(by *conn, r wire.KillRequest) (any, error) {
	s.acts.RLock()
	defer s.acts.RUnlock()
	if err := s.mayAct(by); err != nil {
		return nil, err
	}
	c, err := s.get(r.ID)
	if err != nil {
		return nil, err
	}
	if c.pid == held {
		return nil, fmt.Errorf("%w: container %s is run by another program", errConflict, r.ID)
	}
	if r.All {
		if err := c.cgroup.signalAll(unix.Signal(r.Signal)); err != nil {
			return nil, fmt.Errorf("signal all processes: %w", err)
		}
	}
	return nil, s.reaper.kill(c.pid, unix.Signal(r.Signal))
}

// remove deletes a container that has ended from the OCI runtime and forgets it.
func (s *Server) remove(r wire.Target) (any, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, err
	}
	if c.pid == held {
		return nil, fmt.Errorf("%w: container %s is run by another program", errConflict, r.ID)
	}
	if r.Wait {
		<-c.ended
	}
	select {
	case <-c.ended:
	default:
		return nil, fmt.Errorf("%w: container %s runs", errConflict, r.ID)
	}
	if exists(c.req.Bundle) { // else the run directory was lost, and the OCI runtime knows nothing
		if err := s.oci(c.req, "delete", "--force", r.ID); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	delete(s.containers, r.ID)
	s.mu.Unlock()
	s.note()
	return nil, nil
}
