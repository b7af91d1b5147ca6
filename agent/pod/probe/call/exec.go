package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// An ExitError is the end of a command with a code other than 0.
type ExitError struct {
	Code    int32
	Command []string
	Stderr  string // its beginning
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(e.Command, " "), e.Code, e.Stderr)
}

// Exec runs a command in a container and returns the beginning of what it printed,
// stdout first. The command is killed when its time is over (ErrTimedOut) or ctx ends;
// a timeout of 0 is none but ctx. A code other than 0 is an *ExitError; any other error
// says that the command could not be run.
func (c *Caller) Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
	stdout, stderr, code, err := c.run(ctx, id, command, timeout)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: %q timed out after %s", ErrTimedOut, strings.Join(command, " "), timeout)
	case err != nil:
		return nil, err
	case code != 0:
		err = &ExitError{Code: code, Command: command, Stderr: string(stderr)}
	}
	out := append(stdout, stderr...)
	return clip(out), err
}

// killing is how long a runtime behind a socket gets to end a command whose time is over.
const killing = 2 * time.Minute

// run prefers a runtime in this process to write what the command prints: nobody holds
// more of it than is kept. A runtime behind a socket answers with up to 16 MiB.
func (c *Caller) run(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, code int32,
	err error) {
	s, ok := c.Runtime.(cri.Streamer)
	if !ok {
		if timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout+killing)
			defer stop()
		}
		r, err := c.Runtime.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: command,
			Timeout: int64((timeout + time.Second - 1) / time.Second)})
		return clip(r.GetStdout()), clip(r.GetStderr()), r.GetExitCode(), err
	}
	ctx, stop := within(ctx, timeout)
	defer stop()
	var out, errs beginning
	err = s.Stream(ctx, id, cri.ExecOptions{Command: command, Stdout: &out, Stderr: &errs, Collect: true})
	if exit, ok := errors.AsType[cri.ExitError](err); ok {
		code, err = exit.Code, nil
	}
	return out.Bytes(), errs.Bytes(), code, err
}

// clip copies the beginning, so that the rest can be freed.
func clip(b []byte) []byte { return bytes.Clone(b[:min(len(b), MaxOutput)]) }

// beginning keeps the first MaxOutput bytes.
type beginning struct{ bytes.Buffer }

func (b *beginning) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), MaxOutput-b.Len())])
	return len(p), nil
}

func (b *beginning) Close() error { return nil }
