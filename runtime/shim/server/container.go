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

// lastOutput is how long the shim continues to read a stream after the container's first process
// has ended, if other processes keep the stream open. Output that was written before is always read
// completely.
const lastOutput = 3 * time.Second

// A container contains the state of one container of this shim. All fields except exit are set before pid is set, and do not change
// afterwards. Requests can access a container only after its pid is set.
type container struct {
	req     wire.RunRequest
	by      *conn         // connection of the agent that requested the container
	settled chan struct{} // closed when the start has succeeded or failed
	pid     int           // 0 before the start, heldPID for a held container
	started time.Time
	cgroup  cgroupFiles
	log     *crilog.Log // nil if there is no log
	io      *containerStreams

	mu    sync.Mutex
	exit  *wire.Exit    // nil while the container is running
	ended chan struct{} // closed when exit is set
}

func (c *container) toWire() wire.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid == heldPID {
		return wire.Container{ID: c.req.ID, Held: true}
	}
	return wire.Container{ID: c.req.ID, Running: wire.Running{Pid: c.pid, StartedAt: c.started}, Exit: c.exit}
}

// waitForEnd waits until a container has ended. Then it completes the log, writes the exit to the
// bundle and sends an event to the agent, in this order.
func (s *Server) waitForEnd(c *container, status <-chan unix.WaitStatus) {
	st := <-status
	exit := wire.Exit{Code: exitCode(st), StartedAt: c.started, FinishedAt: time.Now()}
	exit.OOM = exit.Code != 0 && c.cgroup.oomKilled() // before the output, whose end may take long
	if c.req.KillAll {
		if err := c.cgroup.killAll(); err != nil {
			s.log.Warn("remaining processes of an ended container could not be killed", "container", c.req.ID, "error", err)
		}
	}
	c.io.finishOutput(lastOutput)
	if c.log != nil {
		c.log.Close()
	}
	if err := writeExit(c.req.Bundle, exit); err != nil {
		s.log.Warn("the exit of a container could not be written", "container", c.req.ID, "error", err)
	}
	c.mu.Lock()
	c.exit = &exit
	close(c.ended)
	c.mu.Unlock()
	s.sendEvent(c.toWire())
	s.noteChange()
}

// writeExit writes the exit to a file in the bundle. The agent reads the file if this shim no
// longer runs.
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

func (s *Server) killContainer(by *conn, r wire.KillRequest) (any, error) {
	s.takeover.RLock()
	defer s.takeover.RUnlock()
	if err := s.checkOwner(by); err != nil {
		return nil, err
	}
	c, err := s.findContainer(r.ID)
	if err != nil {
		return nil, err
	}
	if c.pid == heldPID {
		return nil, fmt.Errorf("%w: container %s is run by another program", errConflict, r.ID)
	}
	if r.All {
		if err := c.cgroup.signalAll(unix.Signal(r.Signal)); err != nil {
			return nil, fmt.Errorf("signal all processes: %w", err)
		}
	}
	return nil, s.reaper.kill(c.pid, unix.Signal(r.Signal))
}

// removeContainer deletes an ended container from the OCI runtime and from the shim.
func (s *Server) removeContainer(r wire.Target) (any, error) {
	c, err := s.findContainer(r.ID)
	if err != nil {
		return nil, err
	}
	if c.pid == heldPID {
		return nil, fmt.Errorf("%w: container %s is run by another program", errConflict, r.ID)
	}
	if r.Wait {
		<-c.ended
	}
	select {
	case <-c.ended:
	default:
		return nil, fmt.Errorf("%w: container %s is running", errConflict, r.ID)
	}
	if pathExists(c.req.Bundle) { // if the run directory was removed, the OCI runtime's state is gone, too
		if err := s.deleteFromOCI(c); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	delete(s.containers, r.ID)
	s.mu.Unlock()
	s.noteChange()
	return nil, nil
}
