package taskshim

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

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

// An oneConn is a listener with one connection.
type oneConn struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { l.close(); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// serveTask answers calls of the task API on a connection until the test closes the result. answer may wait.
func serveTask(t *testing.T, far net.Conn, service string, answer func(method string) error) (end func()) {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]ttrpc.Method{}
	for _, name := range []string{"Create", "Exec", "Start", "State", "Kill", "Wait", "Delete"} {
		methods[name] = func(_ context.Context, decode func(any) error) (any, error) {
			return &emptypb.Empty{}, errors.Join(decode(&emptypb.Empty{}), answer(name))
		}
	}
	server.RegisterService(service, &ttrpc.ServiceDesc{Methods: methods})
	closed, closeIt := context.WithCancel(t.Context())
	l := &oneConn{make(chan net.Conn, 1), closed, closeIt}
	l.conns <- far
	go server.Serve(t.Context(), l)
	return func() { server.Close() }
}

// TestLateAnswer checks a shim that answers a call only after the caller of the command has stopped waiting. The command is not started.
func TestLateAnswer(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, far, _ := pipeShim()
		s.service = "task"
		calls := make(chan string, 100)
		end := serveTask(t, far, s.service, func(method string) error {
			calls <- method
			if method == "Exec" {
				time.Sleep(time.Hour)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Exec(ctx, Exec{ID: "c1", Dir: dir, Process: &specs.Process{}, Stuck: func() {}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		s.Close()
		end()
		close(calls)
		var got []string
		for method := range calls {
			got = append(got, method)
		}
		if want := []string{"Exec", "Delete"}; !slices.Equal(got, want) {
			t.Errorf("calls %q, want %q", got, want)
		}
	})
}

// TestRefusedKill checks a shim that refuses to kill a command for some time. The kill is repeated until the command has ended.
func TestRefusedKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far, _ := pipeShim()
		s.service = "task"
		kills, ended := 0, make(chan struct{})
		end := serveTask(t, far, s.service, func(method string) error {
			switch method {
			case "Wait":
				<-ended
			case "Kill":
				if kills++; kills < 5 {
					return errors.New("busy")
				}
				close(ended)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.awaitCommand(ctx, "c1", "probe", false)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second+4*killInterval {
			t.Errorf("%v after %s", err, took)
		}
		time.Sleep(10 * killInterval)
		s.Close()
		end()
		if kills != 5 {
			t.Errorf("%d kills", kills)
		}
	})
}
