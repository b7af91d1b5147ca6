package taskshim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

const (
	// createdFile is the name of the file in a bundle that contains the request to create the
	// container. It is removed when the shim has deleted the container.
	createdFile = "task.json"
	// deletingFile is the name of the file in a bundle that exists while the shim deletes the
	// container.
	deletingFile = "task.deleted"
)

func (s *Shim) createdPath(id string) string { return filepath.Join(s.c.Bundles, id, createdFile) }

// readRunRequest returns the request that created a container.
func (s *Shim) readRunRequest(id string) (r wire.RunRequest, err error) {
	b, err := os.ReadFile(s.createdPath(id))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

// Run creates and starts a container. If it fails, it removes the container. Run does not end with ctx, because the shim completes a call
// even if its caller no longer waits. If the shim has not started the container within RunTimeout, Run abandons the shim and returns
// ErrGone. Otherwise a pod whose shim hangs, for example because of a volume that does not respond, could never be stopped. If other
// containers of the pod are running, Run does not abandon the shim, because that would kill them. It then returns ErrNotStarted. If the
// shim starts the container later, the container is killed and removed. If it never does, the stop of the pod abandons the shim: see Kill
// and Discard.
func (s *Shim) Run(ctx context.Context, r wire.RunRequest) (wire.Running, error) {
	if !s.Connected() {
		return wire.Running{}, ErrGone
	}
	if s.IsStarting(r.ID) {
		return wire.Running{}, fmt.Errorf("the containerd shim has not completed an earlier start: %w", errdefs.ErrFailedPrecondition)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RunTimeout)
	defer cancel()
	b, err := json.Marshal(r)
	if err != nil {
		return wire.Running{}, err
	}
	f, err := makeFIFOs(r.Bundle, r.Stdin, !r.Terminal)
	if err != nil {
		return wire.Running{}, fmt.Errorf("create the container's streams: %w", err)
	}
	if err := s.holdStreams(ctx, r); err != nil {
		f.close()
		return wire.Running{}, err
	}
	if err := os.WriteFile(s.createdPath(r.ID), b, 0o600); err != nil {
		f.close()
		s.letGo(ctx, r.ID)
		return wire.Running{}, err
	}
	expired := make(chan struct{})
	result := s.startInBackground(context.WithoutCancel(ctx), r, f, expired) // the calls end with the connection
	var out startResult
	select {
	case out = <-result:
	case <-ctx.Done():
		if s.othersRun(r.ID) {
			close(expired)
			return wire.Running{}, ErrNotStarted
		}
		s.Abandon()
		if out = <-result; out.err != nil {
			out.err = fmt.Errorf("%w: %w", ErrNotStarted, out.err)
		}
	}
	s.setStarting(r.ID, false)
	if out.err != nil {
		s.removeFailed(context.WithoutCancel(ctx), r.ID)
		return wire.Running{}, out.err
	}
	s.awaitEnd(r.ID, out.StartedAt)
	return out.Running, nil
}

// ErrNotStarted is the error of Run for a container whose start may still be in progress, because the shim did not start it in time.
var ErrNotStarted = fmt.Errorf("the containerd shim did not start the container within %s", RunTimeout)

// holdStreams makes islet's shim serve the streams of a container. If the shim already serves them, because it completed an earlier request
// whose caller had stopped waiting, holdStreams first releases them.
func (s *Shim) holdStreams(ctx context.Context, r wire.RunRequest) error {
	streams, err := s.c.Streams(ctx)
	if err != nil {
		return err
	}
	err = streams.HoldStreams(ctx, r)
	if errdefs.IsFailedPrecondition(err) {
		s.letGo(ctx, r.ID)
		err = streams.HoldStreams(ctx, r)
	}
	return err
}

// A startResult is the result of a start.
type startResult struct {
	wire.Running
	err error
}

// startInBackground creates and starts a container, and closes f. If the caller has closed expired instead of receiving the result, it
// removes the container.
func (s *Shim) startInBackground(ctx context.Context, r wire.RunRequest, f *processFIFOs, expired <-chan struct{}) <-chan startResult {
	result := make(chan startResult)
	s.setStarting(r.ID, true)
	s.waits.Go(func() {
		running, err := s.startTask(ctx, r, f, expired)
		f.close() // open write ends would keep the output open
		select {
		case result <- startResult{running, err}:
		case <-expired:
			s.setStarting(r.ID, false)
			if !errdefs.IsUnavailable(err) { // otherwise Discard removes it
				s.removeLate(ctx, r.ID, err)
			}
		}
	})
	return result
}

// startTask makes the calls of Run. It does not start a container that was created too late.
func (s *Shim) startTask(ctx context.Context, r wire.RunRequest, f *processFIFOs, expired <-chan struct{}) (wire.Running, error) {
	if err := s.call(ctx, "Create", &task.CreateTaskRequest{
		ID: r.ID, Bundle: r.Bundle, Terminal: r.Terminal, Stdin: f.stdin, Stdout: f.stdout, Stderr: f.stderr, Options: s.runtimeOptions(),
	}, &task.CreateTaskResponse{}); err != nil {
		return wire.Running{}, err
	}
	select {
	case <-expired:
		return wire.Running{}, ErrNotStarted
	default:
	}
	var out task.StartResponse
	started := time.Now() // before Start, because the container may end before Start returns
	err := s.call(ctx, "Start", &task.StartRequest{ID: r.ID}, &out)
	return wire.Running{Pid: int(out.Pid), StartedAt: started}, err
}

func (s *Shim) setStarting(id string, starting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if starting {
		s.starting[id] = true
	} else {
		delete(s.starting, id)
	}
}

// IsStarting reports whether the shim has not completed the start of a container, also if Run has returned.
func (s *Shim) IsStarting(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starting[id]
}

// othersRun reports whether the shim runs another container than the given one and the sandbox's. It is false for the sandbox's container.
func (s *Shim) othersRun(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.running {
		if id != s.c.ID && other != id && other != s.c.ID {
			return true
		}
	}
	return false
}

// LimitStart abandons the shim if it is still creating or starting a container after killTimeout, and wanted then returns true. The caller
// stops the container, and stops the timer when it no longer waits for the start.
func (s *Shim) LimitStart(id string, wanted func() bool) *time.Timer {
	return time.AfterFunc(killTimeout, func() {
		if s.IsStarting(id) && wanted() {
			s.Abandon()
		}
	})
}

// removeLate removes a container whose start has ended after RunTimeout, with the given error.
func (s *Shim) removeLate(ctx context.Context, id string, err error) {
	if err == nil {
		killCtx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		err := s.Kill(killCtx, wire.KillRequest{ID: id, Signal: int(unix.SIGKILL), All: true})
		if err == nil {
			err = s.call(killCtx, "Wait", &task.WaitRequest{ID: id}, &task.WaitResponse{})
		}
		if err != nil && !errdefs.IsUnavailable(err) {
			s.c.Logger.Warn("a container that started too late could not be killed", "container", id, "error", err)
		}
	}
	s.removeFailed(ctx, id)
}

// removeFailed removes a container that did not start.
func (s *Shim) removeFailed(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err := s.call(ctx, "Delete", &task.DeleteRequest{ID: id}, &task.DeleteResponse{})
	s.letGo(ctx, id)
	if err == nil || errdefs.IsNotFound(err) {
		err = os.Remove(s.createdPath(id))
	}
	if err != nil && !errdefs.IsUnavailable(err) && !errors.Is(err, os.ErrNotExist) {
		s.c.Logger.Warn("a container that did not start could not be removed", "container", id, "error", err)
	}
}

// awaitEnd calls waitForEnd in the background.
func (s *Shim) awaitEnd(id string, started time.Time) {
	s.mu.Lock()
	s.running[id] = true
	s.mu.Unlock()
	s.waits.Go(func() { s.waitForEnd(id, started) })
}

// waitForEnd calls Config.Ended when a container has ended and its output is complete.
func (s *Shim) waitForEnd(id string, started time.Time) {
	ctx := context.Background() // Wait ends with the connection
	var out task.WaitResponse
	err := s.call(ctx, "Wait", &task.WaitRequest{ID: id}, &out)
	s.mu.Lock()
	delete(s.running, id)
	s.mu.Unlock()
	if err != nil {
		if !errdefs.IsUnavailable(err) {
			s.c.Logger.Error("waiting for the end of a container failed", "container", id, "error", err)
		}
		return // Config.Gone handles the end of the shim
	}
	exit := s.newExit(ctx, id, out.ExitStatus, started, out.ExitedAt.AsTime())
	s.c.Ended(wire.Container{ID: id, Exit: &exit})
}

func (s *Shim) newExit(ctx context.Context, id string, code uint32, started, at time.Time) wire.Exit {
	if now := time.Now(); at.Before(started) || at.After(now) { // a virtual machine has its own clock
		at = now
	}
	oom := s.letGo(ctx, id)
	oom = s.c.OOM(id) || oom
	return wire.Exit{Code: int32(code), StartedAt: started, FinishedAt: at, OOM: oom && code != 0}
}

// Kill sends a signal to a container. It returns no error if the container has ended. If the shim does not answer SIGKILL within
// killTimeout, Kill abandons the shim and returns ErrGone. Otherwise a pod whose shim hangs could never be stopped.
func (s *Shim) Kill(ctx context.Context, r wire.KillRequest) error {
	if r.Signal == int(unix.SIGKILL) {
		defer time.AfterFunc(killTimeout, s.Abandon).Stop()
	}
	err := s.call(ctx, "Kill", &task.KillRequest{ID: r.ID, Signal: uint32(r.Signal), All: r.All}, &emptypb.Empty{})
	if err != nil && !errdefs.IsUnavailable(err) {
		if st, stateErr := s.containerState(ctx, r.ID); stateErr == nil && st.Status == types.Status_STOPPED {
			return nil
		}
	}
	return err
}

func (s *Shim) containerState(ctx context.Context, id string) (*task.StateResponse, error) {
	var out task.StateResponse
	err := s.call(ctx, "State", &task.StateRequest{ID: id}, &out)
	return &out, err
}

// settleTimeout is how long a shim may take to complete a Create call of an earlier process of the
// agent.
const settleTimeout = 2 * time.Second

// awaitState returns the state of a container for which Create was called. If the shim does not know the container, awaitState retries for
// settleTimeout, because the shim may still be creating the container.
func (s *Shim) awaitState(ctx context.Context, id string) (*task.StateResponse, error) {
	tick := time.NewTicker(20 * time.Millisecond) // poll, because shims send no event for a failed Create
	defer tick.Stop()
	timeout := time.After(settleTimeout)
	for {
		st, err := s.containerState(ctx, id)
		if !errdefs.IsNotFound(err) {
			return st, err
		}
		if _, statErr := os.Stat(filepath.Join(s.c.Bundles, id, deletingFile)); statErr == nil {
			return st, err
		}
		select {
		case <-tick.C:
		case <-timeout:
			return st, err
		case <-ctx.Done():
			return st, ctx.Err()
		}
	}
}

// Delete deletes an ended container from the shim.
func (s *Shim) Delete(ctx context.Context, id string) error {
	if _, err := os.Stat(s.createdPath(id)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
	}
	deleting := filepath.Join(s.c.Bundles, id, deletingFile)
	if err := os.WriteFile(deleting, nil, 0o600); err != nil {
		return err
	}
	if err := s.call(ctx, "Delete", &task.DeleteRequest{ID: id}, &task.DeleteResponse{}); err != nil {
		return err
	}
	s.letGo(ctx, id)
	return errors.Join(os.Remove(s.createdPath(id)), os.Remove(deleting))
}

// DeleteEnded is like Delete, but first waits until the container has ended.
func (s *Shim) DeleteEnded(ctx context.Context, id string) error {
	if err := s.call(ctx, "Wait", &task.WaitRequest{ID: id}, &task.WaitResponse{}); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return s.Delete(ctx, id)
}

// List returns the given containers that were started. In the background, it waits for the
// end of each running container and then calls Config.Ended. It removes containers that were
// created but not started.
func (s *Shim) List(ctx context.Context, ids []string) ([]wire.Container, error) {
	var out []wire.Container
	for _, id := range ids {
		if _, err := s.readRunRequest(id); readonly.IsShortage(err) {
			return nil, err
		} else if err != nil {
			continue
		}
		st, err := s.awaitState(ctx, id)
		if errdefs.IsNotFound(err) || err == nil && st.Status == types.Status_CREATED {
			if err := s.Discard(ctx, id); err != nil && !errdefs.IsNotFound(err) {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		c := wire.Container{ID: id, Running: wire.Running{Pid: int(st.Pid)}}
		if info, err := os.Stat(s.createdPath(id)); err == nil {
			c.StartedAt = info.ModTime()
		}
		if st.Status == types.Status_STOPPED {
			exit := s.newExit(ctx, id, st.ExitStatus, c.StartedAt, st.ExitedAt.AsTime())
			c.Exit = &exit
		} else {
			s.awaitEnd(id, c.StartedAt)
		}
		out = append(out, c)
	}
	return out, nil
}

// Update changes the limits of a container.
func (s *Shim) Update(ctx context.Context, id string, r *specs.LinuxResources) error {
	any, err := packJSON("LinuxResources", r)
	if err != nil {
		return err
	}
	return s.call(ctx, "Update", &task.UpdateTaskRequest{ID: id, Resources: any}, &emptypb.Empty{})
}

// packJSON encodes a type of the OCI runtime specification in the format of containerd.
func packJSON(name string, v any) (*anypb.Any, error) {
	b, err := json.Marshal(v)
	return &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/" + name, Value: b}, err
}

func (s *Shim) resizeTo(ctx context.Context, id, exec string, width, height uint16) error {
	req := &task.ResizePtyRequest{ID: id, ExecID: exec, Width: uint32(width), Height: uint32(height)}
	return s.call(ctx, "ResizePty", req, &emptypb.Empty{})
}

// closesStdin reports whether the stdin of a container is closed when an attached client closes its
// stdin.
func (s *Shim) closesStdin(id string) bool {
	r, err := s.readRunRequest(id)
	return err == nil && r.StdinOnce && !r.Terminal
}

// closeStdin makes the shim close its own write end of a process's stdin.
func (s *Shim) closeStdin(ctx context.Context, id, exec string) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err := s.call(ctx, "CloseIO", &task.CloseIORequest{ID: id, ExecID: exec, Stdin: true}, &emptypb.Empty{})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		s.c.Logger.Debug("the stdin of a process could not be closed", "container", id, "error", err)
	}
}

// processFIFOs contains the FIFOs of a process that is being started. The path of a stream is empty if it is not connected. ends contains
// write ends of the output. They stay open until the shim has opened the FIFOs, because without a writer, readers would see the end of the
// output.
type processFIFOs struct {
	stdin, stdout, stderr string
	ends                  []*os.File
}

func makeFIFOs(dir string, stdin, stderr bool) (_ *processFIFOs, err error) {
	f := &processFIFOs{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	for _, one := range []struct {
		path   *string
		name   string
		want   bool
		output bool
	}{{&f.stdin, wire.FIFOStdin, stdin, false}, {&f.stdout, wire.FIFOStdout, true, true}, {&f.stderr, wire.FIFOStderr, stderr, true}} {
		if !one.want {
			continue
		}
		*one.path = filepath.Join(dir, one.name)
		if err := makeFIFO(*one.path); err != nil {
			return nil, err
		}
		if !one.output {
			continue
		}
		h, err := os.OpenFile(*one.path, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		f.ends = append(f.ends, h)
	}
	return f, nil
}

func (f *processFIFOs) close() {
	for _, h := range f.ends {
		h.Close()
	}
	f.ends = nil
}

func makeFIFO(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
		return &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return nil
}
