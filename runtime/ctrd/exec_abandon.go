package ctrd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// errStuck is the error of a command that its containerd shim does not start.
var errStuck = fmt.Errorf("the containerd shim does not start the command: %w", errdefs.ErrUnavailable)

// killGrace is how long the end of a command may take after its caller has stopped waiting and the command was killed. A kubelet waits as
// long for a call of the CRI. A process that waits in the kernel does not end before the disk or the volume responds. A hanging containerd
// shim does not report the end. A command of runc or crun counts as ended when the OCI runtime has been killed.
const killGrace = 2 * time.Minute

// maxAbandoned is the maximum number of abandoned commands of a container. Each of them holds pipes and up to 32 MiB of output until it
// ends.
const maxAbandoned = 16

// runAbandonable calls run, which executes a command in a container for a caller that needs the complete output, such as a probe. It
// returns at the latest killGrace after the end of ctx, also if run does not return. The command is then abandoned. While a container has
// an abandoned command, the same command does not start again in it: runAbandonable waits until ctx ends, and at most for execStartTimeout.
// So a probe that is repeated for days leaves only the commands that ran at the same time, and the other probes of the container have
// results of their own. No command starts in a container that has maxAbandoned abandoned ones. The command is also abandoned when run calls
// stuck. The context of run ends then.
func (r *Runtime) runAbandonable(
	ctx context.Context, id string, command []string, run func(ctx context.Context, stuck func()) error,
) error {
	sum := sha256.Sum256([]byte(strings.Join(command, "\x00"))) // the command may be long, and the key is a part of error messages
	abandoned := fmt.Sprintf("command %x that does not end in %s", sum[:8], id)
	limited, cancel := context.WithTimeout(ctx, execStartTimeout)
	defer cancel()
	if err := r.ops.LockContext(limited, abandoned); err != nil {
		return fmt.Errorf("exec in container %s: an earlier command does not end although it was killed: %w", id, err)
	}
	r.ops.Unlock(abandoned)
	if r.abandoned.count(id) >= maxAbandoned {
		return fmt.Errorf("exec in container %s: %d earlier commands do not end although they were killed: %w", id, maxAbandoned,
			context.DeadlineExceeded)
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- fmt.Errorf("exec in container %s panicked: %v", id, p)
			}
		}()
		defer giveUp(nil)
		ended <- run(ctx, func() { giveUp(errStuck) })
	}()
	select {
	case err := <-ended:
		return whyEnded(ctx, id, err)
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return whyEnded(ctx, id, err)
	case <-time.After(cmp.Or(r.execGrace, killGrace)):
	}
	r.log.Warn("a command in a container does not end although it was killed: probes and hooks with the same command fail until it ends",
		"container", id)
	r.abandoned.add(id, 1)
	go func() { // if several commands were abandoned, each of them waits for its turn
		r.ops.Lock(abandoned)
		defer r.ops.Unlock(abandoned)
		<-ended
		r.abandoned.add(id, -1)
	}()
	return whyEnded(ctx, id, ctx.Err())
}

// whyEnded returns err, or the error of a command that was abandoned because it did not start.
func whyEnded(ctx context.Context, id string, err error) error {
	if context.Cause(ctx) == errStuck {
		return fmt.Errorf("exec in container %s: %w", id, errStuck)
	}
	return err
}

// abandonedCommands contains the number of abandoned commands of each container. The zero value is ready.
type abandonedCommands struct {
	mu     sync.Mutex
	number map[string]int
}

func (a *abandonedCommands) count(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.number[id]
}

func (a *abandonedCommands) add(id string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.number == nil {
		a.number = map[string]int{}
	}
	if a.number[id] += n; a.number[id] == 0 {
		delete(a.number, id)
	}
}
