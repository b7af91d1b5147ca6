package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/capped"
	"github.com/islet-edge/islet/runtime/cri"
)

// An ExitError is returned for a command that exited with a code other than 0.
type ExitError struct {
	Code    int32
	Command []string
	Stderr  string // its beginning
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(e.Command, " "), e.Code, e.Stderr)
}

// Exec runs a command in a container and returns the first MaxOutput bytes of its output: stdout, followed by stderr.
// If the timeout passes, the command is killed and the error is ErrTimedOut. The command is also killed when ctx
// ends. A timeout of 0 means that only ctx limits the command. If the command exits with a code other than 0, the
// error is an *ExitError. Any other error means that the command could not be run.
func (c *Caller) Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
	stdout, stderr, code, err := c.runCommand(ctx, id, command, timeout)
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
	return clipOutput(out), err
}

// killTime is the additional time that a remote runtime has to kill a command after its timeout.
const killTime = 2 * time.Minute

// runCommand runs a command. If the runtime is in this process, it streams the output, and keeps only the first bytes in
// memory. A remote runtime, which is called through a socket, returns the whole output at once, up to 16 MiB.
func (c *Caller) runCommand(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, code int32,
	err error) {
	s, ok := c.Runtime.(cri.Streamer)
	if !ok {
		if timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout+killTime)
			defer stop()
		}
		r, err := c.Runtime.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: command,
			Timeout: int64((timeout + time.Second - 1) / time.Second)})
		return clipOutput(r.GetStdout()), clipOutput(r.GetStderr()), r.GetExitCode(), err
	}
	ctx, stop := withTimeout(ctx, timeout)
	defer stop()
	out, errs := &capped.Buffer{Max: MaxOutput}, &capped.Buffer{Max: MaxOutput}
	err = s.Stream(ctx, id, cri.ExecOptions{Command: command, Stdout: out, Stderr: errs, Collect: true})
	if exit, ok := errors.AsType[cri.ExitError](err); ok {
		code, err = exit.Code, nil
	}
	return out.Bytes(), errs.Bytes(), code, err
}

// clipOutput returns a copy of the first MaxOutput bytes, so that the memory of the rest can be freed.
func clipOutput(b []byte) []byte { return bytes.Clone(b[:min(len(b), MaxOutput)]) }
