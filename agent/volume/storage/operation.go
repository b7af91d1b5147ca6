package storage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
)

// An operation is one setup of a pod's volume. Its steps end with the context of the caller, except the long ones: the
// check and the formatting of a disk, and the change of the group of files. They take as long as the disk needs. So they
// continue after the caller has stopped waiting, and the next call waits for them, as in a kubelet. The teardown of the
// pod's volume and the end of the agent cancel them.
type operation struct {
	ctx    context.Context //nolint:containedctx // does not end when the caller stops waiting
	cancel context.CancelFunc
	step   atomic.Pointer[string] // the long step that is running, or nil
	long   atomic.Bool            // whether there was a long step
}

// operationKey is the key of the operation in a context.
type operationKey struct{}

// longStep begins a long step, whose context does not end when the caller stops waiting. what describes the step in messages. The caller
// must call end when the step has ended. If no operation has ctx, longStep returns ctx.
func longStep(ctx context.Context, what string) (_ context.Context, end func()) {
	o, ok := ctx.Value(operationKey{}).(*operation)
	if !ok {
		return ctx, func() {}
	}
	o.long.Store(true)
	o.step.Store(&what)
	return o.ctx, func() { o.step.Store(nil) }
}

// beginOperation returns the context of a setup. The caller must be in withUse, and must call the returned function.
func (k *Mounter) beginOperation(ctx context.Context, u volumeUse) (_ context.Context, o *operation, end func()) {
	o = &operation{}
	o.ctx, o.cancel = context.WithCancel(k.life)
	k.mu.Lock()
	defer k.mu.Unlock()
	call := k.inFlight[u]
	call.setUp = o
	return context.WithValue(ctx, operationKey{}, o), o, func() {
		o.cancel()
		k.mu.Lock()
		defer k.mu.Unlock()
		call.setUp = nil
	}
}

// cancelSetUp cancels the long step of a setup that is running although no caller waits for it.
func (k *Mounter) cancelSetUp(u volumeUse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if call := k.inFlight[u]; call != nil && call.setUp != nil {
		call.setUp.cancel()
	}
}

// describeStep returns err with a description of the long step for which the volume's users wait, if there is one.
func (k *Mounter) describeStep(u volumeUse, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if step := k.inFlight[u].longStep(); step != "" {
		return fmt.Errorf("%s: %w", step, err)
	}
	return err
}

// longStep returns the description of the long step that is running, or "".
func (c *pendingCalls) longStep() string {
	if c == nil || c.setUp == nil {
		return ""
	}
	if step := c.setUp.step.Load(); step != nil { // the step may end meanwhile
		return *step
	}
	return ""
}

// reportLate records an event for the error of a setup with a long step if its caller, whose context is ctx, has stopped waiting. A
// kubelet records such an event too. The setup of a block volume has no long step.
func (k *Mounter) reportLate(ctx context.Context, o *operation, pod *v1.Pod, err error) {
	if !o.long.Load() || ctx.Err() == nil || o.ctx.Err() != nil || errors.Is(err, ctx.Err()) {
		return
	}
	k.recordEvent(pod, v1.EventTypeWarning, "FailedMount", err.Error())
}
