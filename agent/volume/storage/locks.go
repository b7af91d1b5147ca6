package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A volumeUse is a map key that consists of a volume and a pod that uses it. As the key of a lock, it has an empty pod for the lock of the
// volume.
type volumeUse struct {
	id  string
	pod types.UID
}

// pendingCalls counts the unfinished calls for one use.
type pendingCalls struct {
	calls int
	since time.Time  // when the first of these calls started
	setUp *operation // the setup that is running; nil if none is
}

// A volumeLock is locked while a driver is called for the volume, or while a pod's volume is set up or torn down.
type volumeLock struct {
	lock  chan struct{} // a lock of capacity 1
	users int
}

// errBusy means that a call for a volume gave up waiting, because an earlier call for the same volume has not
// ended.
var errBusy = errors.New("another operation on the volume has not ended")

// withLock locks the volume and runs f in a goroutine. If ctx ends first, withLock returns while f continues. The
// volume stays locked until f returns.
func (k *Mounter) withLock(ctx context.Context, id string, pod types.UID, f func(context.Context) error) error {
	end := k.beginCall(volumeUse{id, pod})
	unlock, err := k.lock(ctx, volumeUse{id: id})
	if err != nil {
		end()
		return err
	}
	return callAndWait(ctx, f, end, unlock)
}

// withUse locks a pod's use of a volume and then the volume. After that, it is like withLock. f may unlock the volume before it returns.
// The use stays locked until f returns.
func (k *Mounter) withUse(ctx context.Context, u volumeUse, f func(ctx context.Context, unlock func()) error) error {
	end := k.beginCall(u)
	leave, err := k.lock(ctx, u)
	if err != nil {
		end()
		return err
	}
	unlock, err := k.lock(ctx, volumeUse{id: u.id})
	if err != nil {
		end()
		leave()
		return err
	}
	unlock = sync.OnceFunc(unlock)
	return callAndWait(ctx, func(ctx context.Context) error { return f(ctx, unlock) }, end, unlock, leave)
}

// beginCall counts a call for a pod's volume as unfinished, until the returned function is called.
func (k *Mounter) beginCall(u volumeUse) (end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inFlight[u] == nil {
		k.inFlight[u] = &pendingCalls{since: time.Now()}
	}
	k.inFlight[u].calls++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.inFlight[u].calls--
		if k.inFlight[u].calls == 0 {
			delete(k.inFlight, u)
		}
	}
}

// lock acquires a lock. It returns errBusy if ctx ends first.
func (k *Mounter) lock(ctx context.Context, key volumeUse) (unlock func(), err error) {
	k.mu.Lock()
	t := k.locks[key]
	if t == nil {
		t = &volumeLock{lock: make(chan struct{}, 1)}
		k.locks[key] = t
	}
	t.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		t.users--
		if t.users == 0 {
			delete(k.locks, key)
		}
	}
	select {
	case t.lock <- struct{}{}:
		return func() {
			leave() // before the lock is released, so that the next holder of the lock does not see this call
			<-t.lock
		}, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("%w: %w", errBusy, ctx.Err())
	}
}

// callAndWait calls f in a goroutine, and then the functions of after. If ctx ends first, callAndWait returns while f continues.
func callAndWait(ctx context.Context, f func(context.Context) error, after ...func()) error {
	ended := make(chan error, 1)
	go func() {
		err := callRecovering(ctx, f)
		for _, do := range after {
			do()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// callRecovering calls a driver and converts a panic into an error.
func callRecovering(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f(ctx)
}
