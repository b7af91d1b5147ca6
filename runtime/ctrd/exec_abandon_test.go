package ctrd

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/runtime/cri"
)

// readiness is the command of a probe.
var readiness = []string{"test", "-f", "/nfs/ready"}

// TestAbandonedCommand checks a command that does not end although it was killed. Its caller gets the error of its context after killGrace.
// The same command does not start again in the container while it exists, however often a probe repeats it. Then it starts again. Other
// commands start, so that a liveness probe has its own result.
func TestAbandonedCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{log: slog.New(slog.DiscardHandler)}
		kernel, commands := make(chan struct{}), 0
		hang := func(context.Context, func()) error { commands++; <-kernel; return nil }
		works := func(context.Context, func()) error { return nil }
		probe := func(id string, run func(context.Context, func()) error) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			err := r.runAbandonable(ctx, id, readiness, run)
			synctest.Wait()
			return time.Since(began), err
		}
		if took, err := probe("c1", hang); !errors.Is(err, context.DeadlineExceeded) || took != time.Second+killGrace {
			t.Errorf("the first command: %v after %s", err, took)
		}
		for range 1000 {
			if took, err := probe("c1", hang); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
				t.Fatalf("a further command: %v after %s", err, took)
			}
		}
		if commands != 1 {
			t.Errorf("%d commands were started", commands)
		}
		if _, err := probe("c2", works); err != nil {
			t.Errorf("another container: %v", err)
		}
		for _, liveness := range [][]string{{"pidof", "app"}, {"test", "-f", "/nfs/ready", ""}, {"test", "-f /nfs/ready"}, readiness[:2], nil} {
			if err := r.runAbandonable(t.Context(), "c1", liveness, works); err != nil {
				t.Errorf("%q: %v", liveness, err)
			}
		}
		if err := r.runAbandonable(t.Context(), "c1", readiness, works); err == nil { // a hook has no timeout
			t.Error("a hook has run")
		}
		close(kernel)
		synctest.Wait()
		if _, err := probe("c1", works); err != nil || len(r.ops.locks) > 0 {
			t.Errorf("after the end of the command: %v, %d locks", err, len(r.ops.locks))
		}
	})
}

// TestConcurrentAbandonedCommands checks commands that run at the same time and do not end. A further command starts when all of them have
// ended.
func TestConcurrentAbandonedCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{log: slog.New(slog.DiscardHandler)}
		var ends []chan struct{}
		for range 3 {
			end := make(chan struct{})
			ends = append(ends, end)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			go r.runAbandonable(ctx, "c1", readiness, func(context.Context, func()) error { <-end; return nil })
		}
		time.Sleep(time.Second + killGrace)
		synctest.Wait()
		waiting := make(chan error, 1)
		go func() {
			waiting <- r.runAbandonable(t.Context(), "c1", readiness, func(context.Context, func()) error { return cri.ExitError{Code: 7} })
		}()
		for i, end := range ends {
			synctest.Wait()
			if len(waiting) > 0 {
				t.Errorf("the waiting command ran while %d commands were abandoned", len(ends)-i)
			}
			close(end)
		}
		var exit cri.ExitError
		if err := <-waiting; !errors.As(err, &exit) || exit.Code != 7 {
			t.Error(err)
		}
	})
}

// TestManyAbandonedCommands checks that commands which all differ cannot take up the memory of the agent in a container whose commands do
// not end, and that other containers are not affected.
func TestManyAbandonedCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{log: slog.New(slog.DiscardHandler)}
		end := make(chan struct{})
		var started atomic.Int32
		hang := func(context.Context, func()) error { started.Add(1); <-end; return nil }
		for i := range 2 * maxAbandoned {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := r.runAbandonable(ctx, "c1", []string{"date", strconv.Itoa(i)}, hang)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		if n := started.Load(); n != maxAbandoned {
			t.Errorf("%d commands were started", n)
		}
		works := func(context.Context, func()) error { return nil }
		if err := r.runAbandonable(t.Context(), "c2", readiness, works); err != nil {
			t.Error(err)
		}
		close(end)
		synctest.Wait()
		if err := r.runAbandonable(t.Context(), "c1", readiness, works); err != nil || len(r.abandoned.number) > 0 {
			t.Errorf("after the end of the commands: %v, %v", err, r.abandoned.number)
		}
	})
}

// TestStuckCommand checks a command without a timeout that its shim does not start. The caller gets an error, and further commands do not
// start until the shim responds.
func TestStuckCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{log: slog.New(slog.DiscardHandler)}
		answer := make(chan struct{})
		err := r.runAbandonable(t.Context(), "c1", readiness, func(ctx context.Context, stuck func()) error {
			stuck()
			<-answer
			return ctx.Err()
		})
		if !errors.Is(err, errdefs.ErrUnavailable) || errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		works := func(context.Context, func()) error { return nil }
		if err := r.runAbandonable(t.Context(), "c1", readiness, works); err == nil {
			t.Error("a further command has run")
		}
		close(answer)
		synctest.Wait()
		if err := r.runAbandonable(t.Context(), "c1", readiness, works); err != nil {
			t.Error(err)
		}
	})
}

// TestPanickingCommand checks that a panic is the error of one command.
func TestPanickingCommand(t *testing.T) {
	err := new(Runtime).runAbandonable(t.Context(), "c1", readiness, func(context.Context, func()) error { panic("oh") })
	if err == nil || !strings.Contains(err.Error(), "oh") {
		t.Error(err)
	}
}
