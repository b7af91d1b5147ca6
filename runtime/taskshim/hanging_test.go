package taskshim

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// pipeShim returns a Shim that is connected to the other end of a pipe. The channel is closed when Config.Gone is called.
func pipeShim() (s *Shim, far net.Conn, gone <-chan struct{}) {
	near, far := net.Pipe()
	lost := make(chan struct{})
	s = New(Config{Gone: func() { close(lost) }})
	s.gone = make(chan struct{})
	s.client = ttrpc.NewClient(near, ttrpc.WithOnClose(s.handleDisconnect))
	return s, far, lost
}

// TestUnansweredCommand checks a command whose end its shim does not report. The wait ends commandTimeout after the end of its context.
func TestUnansweredCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far, _ := pipeShim()
		go io.Copy(io.Discard, far)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.awaitCommand(ctx, "c1", "probe", true)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second+commandTimeout {
			t.Errorf("%v after %s", err, took)
		}
		s.Close()
	})
}

// TestStuckCommand checks a command of a caller that abandons it. Exec does not return while the shim exists, neither when the shim does
// not answer at all nor when it does not report the end of the command. So the caller starts no further command. A shim that does not
// answer is reported once.
func TestStuckCommand(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, s *Shim, dir string, stuck func()) error{
		"start": func(ctx context.Context, s *Shim, dir string, stuck func()) error {
			_, err := s.Exec(ctx, Exec{ID: "c1", Dir: dir, Process: &specs.Process{}, Stuck: stuck})
			return err
		},
		"end": func(ctx context.Context, s *Shim, dir string, stuck func()) error {
			stuck()
			_, err := s.awaitCommand(ctx, "c1", "probe", false)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s, far, _ := pipeShim()
				go io.Copy(io.Discard, far)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				stuck, returned := 0, make(chan error, 1)
				go func() { returned <- run(ctx, s, dir, func() { stuck++ }) }()
				time.Sleep(10 * commandTimeout)
				synctest.Wait()
				if len(returned) > 0 || stuck != 1 || !s.Connected() {
					t.Errorf("the command has ended: %t, reported %d times, connected %t", len(returned) > 0, stuck, s.Connected())
				}
				far.Close()
				if err := <-returned; err == nil {
					t.Error("no error after the end of the shim")
				}
				s.Close()
			})
		})
	}
}

// TestUnansweredKill checks a shim that does not answer. It survives other signals and a caller that stops waiting. If it does not answer
// SIGKILL either, the shim counts as dead after killTimeout, so that its pod can be stopped.
func TestUnansweredKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far, gone := pipeShim()
		go io.Copy(io.Discard, far)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Kill(ctx, wire.KillRequest{ID: "c1", Signal: int(unix.SIGTERM)}); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("SIGTERM: %v", err)
		}
		if err := s.Kill(ctx, wire.KillRequest{ID: "c1", Signal: int(unix.SIGKILL)}); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("SIGKILL, and the caller has stopped waiting: %v", err)
		}
		if !s.Connected() {
			t.Error("the shim was abandoned too early")
		}
		began := time.Now()
		err := s.Kill(t.Context(), wire.KillRequest{ID: "c1", Signal: int(unix.SIGKILL)})
		if took := time.Since(began); !errors.Is(err, ErrGone) || took != killTimeout {
			t.Errorf("SIGKILL: %v after %s", err, took)
		}
		<-gone
		s.Close()
	})
}

// TestSilentShim checks a shim that does not read. A call fails commandTimeout after the end of its context, and the shim counts as dead,
// so that its pod is started again.
func TestSilentShim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far, gone := pipeShim()
		defer far.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := s.call(ctx, "State", &task.StateRequest{}, &task.StateResponse{})
		if took := time.Since(began); err == nil || took != time.Second+commandTimeout {
			t.Errorf("%v after %s", err, took)
		}
		<-gone
		if _, err := s.awaitCommand(t.Context(), "c1", "probe", true); !errors.Is(err, ErrGone) {
			t.Errorf("a command: %v", err)
		}
		s.Close()
	})
}
