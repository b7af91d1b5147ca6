package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// A program runs in the container. It writes output and then returns.
type program func(ctx context.Context, out, errs io.Writer) error

// localRuntime is a runtime in this process, and remote is a runtime behind a socket.
type (
	localRuntime struct {
		cri.Runtime
		run program
	}
	remote struct {
		cri.Runtime
		run     program
		request *api.ExecSyncRequest
	}
)

func (l localRuntime) Stream(ctx context.Context, id string, o cri.ExecOptions) error {
	if id != "c1" || o.Stdin != nil || o.TTY {
		return fmt.Errorf("exec in %s, input %v, terminal %v: %w", id, o.Stdin, o.TTY, errdefs.ErrNotFound)
	}
	return l.run(ctx, o.Stdout, o.Stderr)
}

func (l localRuntime) Forward(context.Context, string, int32, io.ReadWriteCloser) error {
	return errdefs.ErrNotImplemented
}

func (r *remote) ExecSync(ctx context.Context, req *api.ExecSyncRequest) (*api.ExecSyncResponse, error) {
	r.request = req
	if t := req.Timeout; t > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(t)*time.Second)
		defer stop()
	}
	var out, errs strings.Builder
	err := r.run(ctx, &out, &errs)
	resp := &api.ExecSyncResponse{Stdout: []byte(out.String()), Stderr: []byte(errs.String())}
	var exit cri.ExitError
	switch {
	case errors.As(err, &exit):
		resp.ExitCode = exit.Code
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("exec: %w", err)
	case err != nil:
		return nil, err
	}
	return resp, nil
}

func printing(out, errs string, err error) program {
	return func(_ context.Context, o, e io.Writer) error {
		io.WriteString(o, out)
		io.WriteString(e, errs)
		return err
	}
}

// This program writes output until it is killed.
func forever(ctx context.Context, out, errs io.Writer) error {
	for n := 0; ctx.Err() == nil; n++ {
		if n < 1000 { // a runtime behind a socket buffers the whole output
			io.WriteString(out, strings.Repeat("x", 1<<10))
			io.WriteString(errs, strings.Repeat("x", 1<<10))
		} else {
			<-ctx.Done()
		}
	}
	return ctx.Err()
}

func TestExec(t *testing.T) {
	refused := fmt.Errorf("it does not run: %w", errdefs.ErrFailedPrecondition)
	big := strings.Repeat("x", 3*MaxOutput)
	for _, tt := range []struct {
		name    string
		run     program
		timeout time.Duration
		bytes   int
		want    string
	}{
		{"succeeds", printing("well", "warned", nil), 0, 10, ""},
		{"fails", printing("", "bad", cri.ExitError{Code: 3}), time.Minute, 3, "command 'check me' exited with 3: bad"},
		{"prints much", printing(big, big, nil), time.Minute, MaxOutput, ""},
		{"cannot be run", printing("", "", refused), time.Minute, 0, "it does not run: failed precondition"},
		{"too slow", forever, time.Second, 0, `command timed out: "check me" timed out after 1s`},
	} {
		r := &remote{run: tt.run}
		for kind, rt := range map[string]cri.Runtime{"local": localRuntime{run: tt.run}, "remote": r} {
			t.Run(tt.name+" "+kind, func(t *testing.T) {
				out, err := New(Config{Runtime: rt}).Exec(t.Context(), "c1", []string{"check", "me"}, tt.timeout)
				if got := fmt.Sprint(err); err == nil != (tt.want == "") || err != nil && got != tt.want {
					t.Errorf("error %q, want %q", got, tt.want)
				}
				if len(out) != tt.bytes || cap(out) > 4*MaxOutput {
					t.Errorf("%d bytes in %d, want %d", len(out), cap(out), tt.bytes)
				}
				if exit, ok := errors.AsType[*ExitError](err); ok != (tt.name == "fails") || ok && exit.Code != 3 {
					t.Errorf("%#v", err)
				}
				if errors.Is(err, ErrTimedOut) != (tt.name == "too slow") {
					t.Errorf("timed out: %v", err)
				}
			})
		}
		if q := r.request; q.ContainerId != "c1" || q.Timeout != int64(tt.timeout/time.Second) {
			t.Errorf("the request is %v", q)
		}
	}
}

func TestExecEndsWithItsContext(t *testing.T) {
	for kind, rt := range map[string]cri.Runtime{"local": localRuntime{run: forever}, "remote": &remote{run: forever}} {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := New(Config{Runtime: rt}).Exec(ctx, "c1", []string{"a"}, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
