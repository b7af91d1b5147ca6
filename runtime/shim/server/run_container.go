package server

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/crilog"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

const (
	pidFile = "init.pid"
	ociLog  = "oci.log"
	// maxOCILog is the size in bytes at which the log of the OCI runtime for one container is
	// truncated. Each failed attempt to delete the container appends to this log.
	maxOCILog = 64 << 10
	// logInterval is the interval between log rotations for agents that send none. It equals the
	// default of containerLogMonitorInterval.
	logInterval = 10 * time.Second
)

// runContainer creates and starts a container. If it fails, or if another agent takes over meanwhile, the container is removed. No lock is
// held while the OCI runtime runs, because a disk or a volume that does not respond can block the OCI runtime without end.
func (s *Server) runContainer(by *conn, r wire.RunRequest) (wire.Running, error) {
	if err := s.reaper.checkStuck(podOf(r)); err != nil {
		return wire.Running{}, err
	}
	c, err := s.addContainer(by, r)
	if err != nil {
		return wire.Running{}, err
	}
	defer close(c.settled)
	defer s.reaper.adoptLater()()
	pid, err := s.startContainer(c)
	if err != nil {
		s.dropContainer(c)
		return wire.Running{}, err
	}
	status := s.reaper.adoptChild(pid)
	if err := s.confirmStart(c, pid); err != nil {
		s.reaper.kill(pid, unix.SIGKILL)
		s.discardStart(c, false)
		s.dropContainer(c)
		return wire.Running{}, err
	}
	go s.waitForEnd(c, status)
	return wire.Running{Pid: pid, StartedAt: c.started}, nil
}

// confirmStart makes a started container accessible to requests. It returns an error if another agent has taken over since addContainer:
// the list for that agent does not contain the container.
func (s *Server) confirmStart(c *container, pid int) error {
	s.takeover.RLock()
	defer s.takeover.RUnlock()
	if err := s.checkOwner(c.by); err != nil {
		return err
	}
	c.io.startCopying() // before other requests find the container
	s.mu.Lock()
	c.pid, c.started = pid, time.Now()
	s.mu.Unlock()
	return nil
}

// addContainer registers a container and opens its log. dropContainer reverts it. If there is no error, the caller closes c.settled.
func (s *Server) addContainer(by *conn, r wire.RunRequest) (*container, error) {
	c := &container{req: r, by: by, cgroup: cgroupAt(r.Cgroup), settled: make(chan struct{}), ended: make(chan struct{})}
	if err := s.register(c); err != nil {
		return nil, err
	}
	if r.Log.Path != "" {
		var err error
		c.log, err = crilog.Open(r.Log.Path, crilog.Options{
			MaxBytes: r.Log.MaxBytes, HardMaxBytes: r.Log.HardMaxBytes, MaxFiles: r.Log.MaxFiles,
			Interval: cmp.Or(r.Log.Interval, logInterval),
			Compress: s.compressor.enqueue,
		})
		if err != nil {
			s.dropContainer(c)
			close(c.settled)
			return nil, err
		}
	}
	return c, nil
}

// register adds a container whose ID is free, unless another agent has replaced the agent that requests it.
func (s *Server) register(c *container) error {
	s.takeover.RLock()
	defer s.takeover.RUnlock()
	if err := s.checkOwner(c.by); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers[c.req.ID] != nil {
		return fmt.Errorf("%w: container %s already exists", errConflict, c.req.ID)
	}
	s.containers[c.req.ID] = c
	return nil
}

// dropContainer closes the streams and the log of a container that did not start, and removes the container.
func (s *Server) dropContainer(c *container) {
	if c.io != nil {
		c.io.closeFiles()
	}
	if c.log != nil {
		c.log.Close()
	}
	s.mu.Lock()
	delete(s.containers, c.req.ID)
	s.mu.Unlock()
	s.noteChange()
}

// startContainer starts a container with the OCI runtime and returns its PID.
func (s *Server) startContainer(c *container) (_ int, err error) {
	r := c.req
	if c.io, err = newStreams(c); err != nil {
		return 0, err
	}
	stuck := false
	defer func() {
		if err != nil {
			s.discardStart(c, stuck)
		}
	}()
	args := []string{"run", "--detach", "--bundle", r.Bundle, "--pid-file", filepath.Join(r.Bundle, pidFile)}
	if c.io.console != nil {
		args = append(args, "--console-socket", c.io.console.Path())
	}
	cmd := s.ociCommand(r, append(args, r.ID)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.io.childStdin, c.io.childStdout, c.io.childStderr
	launch, started, err := s.prepareMounts(r)
	if err == nil {
		err = s.reaper.runWithTimeout(podOf(r), cmd, launch)
		stuck = errors.Is(err, errStuck)
		started()
	}
	c.io.closeChild()
	if err != nil {
		return 0, fmt.Errorf("OCI runtime: %s", ociError(r.Bundle, err))
	}
	if err := c.io.receiveTerminal(c.log); err != nil {
		return 0, err
	}
	b, err := os.ReadFile(filepath.Join(r.Bundle, pidFile))
	if err != nil {
		return 0, fmt.Errorf("read the container's PID: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// discardStart removes the processes, the state and the cgroup of a container that did not start. A killed OCI runtime has removed
// none of them, and may not have written the state that it needs for its command delete. If its command run is stuck, the command delete
// would probably be the next process that does not end.
func (s *Server) discardStart(c *container, stuck bool) {
	err := c.cgroup.killAll()
	if !stuck {
		s.runOCI(c.req, "delete", "--force", c.req.ID) // usually fails, because no container was created
	}
	if name := path.Clean("/" + c.req.Cgroup); name != "/" && !c.req.OCI.Systemd { // systemd removes an empty cgroup itself
		err = errors.Join(err, removeCgroup(name))
	}
	if err != nil {
		s.log.Warn("the cgroup of a container that did not start could not be removed", "container", c.req.ID, "error", err)
	}
}

// prepareMounts prepares the mounts of a container and selects the mount namespace of the OCI runtime. The first result starts the command
// of the OCI runtime in that namespace. If there was no error, the second result must be called when the command has ended.
func (s *Server) prepareMounts(r wire.RunRequest) (launch func(*exec.Cmd) error, started func(), err error) {
	nothing := func() {}
	switch {
	case s.host == nil:
		return (*exec.Cmd).Start, nothing, nil
	case r.Mounts == nil:
		return s.host.start, nothing, nil
	}
	unmount, err := s.host.copyMounts(r.Bundle, *r.Mounts)
	if errors.Is(err, errNotSame) {
		s.log.Info("container is started in the host's mount namespace", "container", r.ID, "why", err)
		return s.host.start, nothing, restoreLinks(r.Bundle, *r.Mounts)
	}
	return (*exec.Cmd).Start, unmount, err
}

// runOCI runs a command of the OCI runtime without stdin, stdout and stderr.
func (s *Server) runOCI(r wire.RunRequest, args ...string) error {
	if err := s.reaper.runWithTimeout(podOf(r), s.ociCommand(r, args...), (*exec.Cmd).Start); err != nil {
		return fmt.Errorf("OCI runtime command %s: %s", args[0], ociError(r.Bundle, err))
	}
	return nil
}

// podOf returns the cgroup of a container's pod.
func podOf(r wire.RunRequest) string { return path.Dir(r.Cgroup) }

func (s *Server) ociCommand(r wire.RunRequest, args ...string) *exec.Cmd {
	log := filepath.Join(r.Bundle, ociLog)
	if st, err := os.Lstat(log); err == nil && st.Mode().IsRegular() && st.Size() > maxOCILog {
		os.Truncate(log, 0)
	}
	global := []string{"--root", r.OCI.Root, "--log", log, "--log-format", "json"}
	if r.OCI.Systemd {
		global = append(global, "--systemd-cgroup")
	}
	return exec.Command(r.OCI.Path, append(global, args...)...)
}

// ociError returns the last error in the OCI runtime's log. If there is none, it returns the text of err.
func ociError(bundle string, err error) string {
	b, readErr := os.ReadFile(filepath.Join(bundle, ociLog))
	if readErr != nil {
		return err.Error()
	}
	msg := ""
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		var line struct{ Level, Msg string }
		if json.Unmarshal(sc.Bytes(), &line) == nil && line.Level == "error" {
			msg = line.Msg
		}
	}
	if msg == "" {
		return err.Error()
	}
	return runcPhrase(strings.TrimSpace(msg))
}

// If a command is not in $PATH, runcPhrase replaces crun's error message with runc's. Tools search the statuses of containers for
// runc's phrase "executable file not found in $PATH".
func runcPhrase(msg string) string {
	before, found, ok := strings.Cut(msg, "executable file `")
	name, after, named := strings.Cut(found, "` not found in $PATH")
	if !ok || !named {
		return msg
	}
	return before + fmt.Sprintf("exec: %q: executable file not found in $PATH", name) +
		strings.TrimPrefix(after, ": No such file or directory")
}
