package ctrd

import (
	"context"
	"fmt"
	"sync"
)

// opLocks contains one lock for each ID. The zero value is ready. An operation holds the lock of its object while it waits for a shim or an
// OCI runtime, which may wait in the kernel without end. Therefore a call with a context waits for a lock only until its context ends.
type opLocks struct {
	mu    sync.Mutex
	locks map[string]*opLock // locks that are held or waited for
}

// An opLock is a lock. opLocks.mu guards users.
type opLock struct {
	held  chan struct{} // capacity 1; has a value while the lock is held
	users int           // number of calls that hold the lock or wait for it
}

// Lock acquires the lock of an ID.
func (l *opLocks) Lock(id string) { l.enter(id).held <- struct{}{} }

// LockContext acquires the lock of an ID. If ctx ends first, it returns the error of ctx. It acquires a free lock even if ctx has ended.
func (l *opLocks) LockContext(ctx context.Context, id string) error {
	o := l.enter(id)
	select {
	case o.held <- struct{}{}:
		return nil
	default:
	}
	select {
	case o.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leave(id, o)
		return fmt.Errorf("wait for another operation on %s: %w", id, ctx.Err())
	}
}

// Unlock releases the lock of an ID.
func (l *opLocks) Unlock(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.locks[id]
	<-o.held
	l.leave(id, o)
}

func (l *opLocks) enter(id string) *opLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.locks[id]
	if o == nil {
		if l.locks == nil {
			l.locks = map[string]*opLock{}
		}
		o = &opLock{held: make(chan struct{}, 1)}
		l.locks[id] = o
	}
	o.users++
	return o
}

// leave removes a lock that has no users any more. The caller holds mu.
func (l *opLocks) leave(id string, o *opLock) {
	if o.users--; o.users == 0 {
		delete(l.locks, id)
	}
}
