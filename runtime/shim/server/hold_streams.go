package server

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// heldPID is the PID of a held container, which is a child of a containerd shim. For such a
// container, this shim only writes the log and serves attached clients.
const heldPID = -1

// holdContainer opens the FIFOs of a container and starts copying its output.
func (s *Server) holdContainer(by *conn, r wire.RunRequest) error {
	c, err := s.addContainer(by, r)
	if err != nil {
		return err
	}
	defer close(c.settled)
	if err := c.openFIFOs(); err != nil {
		s.dropContainer(c)
		return fmt.Errorf("open the streams of container %s: %w", r.ID, err)
	}
	if err := s.confirmStart(c, heldPID); err != nil {
		s.dropContainer(c)
		return err
	}
	return nil
}

func (c *container) openFIFOs() error {
	c.io = emptyStreams()
	names := []string{"", wire.FIFOStdout, wire.FIFOStderr} // in the order of the streams' numbers
	for stream := wire.StreamStdout; stream <= wire.StreamStderr; stream++ {
		if stream == wire.StreamStderr && c.req.Terminal {
			break
		}
		f, err := openFIFO(filepath.Join(c.req.Bundle, names[stream]), unix.O_RDONLY)
		if err != nil {
			return err
		}
		k := &streamCopier{streams: c.io, stream: stream}
		switch {
		case c.log == nil:
		case c.req.Terminal:
			k.log = c.log.Terminal(names[stream])
		default:
			k.log = c.log.Stream(names[stream])
		}
		c.io.out.Add(f, k)
	}
	if !c.req.Stdin {
		return nil
	}
	var err error
	// Use O_RDWR, because a non-blocking open with O_WRONLY fails until there is a reader.
	c.io.stdin.file, err = openFIFO(filepath.Join(c.req.Bundle, wire.FIFOStdin), unix.O_RDWR)
	return err
}

// openFIFO opens a FIFO. The call does not wait until the other end is opened.
func openFIFO(path string, mode int) (*os.File, error) {
	f, err := os.OpenFile(path, mode|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Mode()&os.ModeNamedPipe == 0 {
		err = fmt.Errorf("%s is not a FIFO", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// letGo waits for the last output of an ended container, closes its log and deletes the container.
func (s *Server) letGo(r wire.Target) (wire.Held, error) {
	c, err := s.findContainer(r.ID)
	if err != nil {
		return wire.Held{}, err
	}
	if c.pid != heldPID {
		return wire.Held{}, fmt.Errorf("%w: container %s is run by this shim", errConflict, r.ID)
	}
	out := wire.Held{OOM: c.cgroup.oomKilled()}
	if c.req.KillAll { // remaining processes would keep the streams open
		if err := c.cgroup.killAll(); err != nil {
			s.log.Warn("remaining processes of an ended container could not be killed", "container", r.ID, "error", err)
		}
	}
	c.io.finishOutput(lastOutput)
	if c.log != nil {
		c.log.Close()
	}
	s.mu.Lock()
	delete(s.containers, r.ID)
	s.mu.Unlock()
	s.noteChange()
	return out, nil
}
