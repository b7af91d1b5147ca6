package storage

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/retry"
)

// Between two attempts to make a file system grow.
const (
	firstExpansion = time.Second
	lastExpansion  = 2 * time.Minute
)

// An ExpandError is why a volume cannot grow, of a driver that says more than that.
type ExpandError struct {
	Err error
	// Final says that the driver has given up: nothing goes on.
	Final bool
	// Infeasible says that it can never be. It is final too.
	Infeasible bool
	// InUse says that it cannot be while the volume is in use. It is final too.
	InUse bool
}

func (e *ExpandError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *ExpandError) Unwrap() error { return e.Err }

// An expansion is one that goes on or has failed, of one pod's volume.
type expansion struct {
	busy   bool   // it goes on
	wanted string // the sizes that are wanted
	final  bool   // the driver gave up the last time
	inUse  bool   // it is not tried again while the volume is mounted
	again  retry.Backoff
	timer  *time.Timer // nil: the next attempt is not before something changes
}

// wanted names the sizes by which an attempt differs from another.
func wanted(v Volume) string {
	return v.Capacity.Storage().String() + " of " + v.claim.Spec.Resources.Requests.Storage().String()
}

// beginExpansion reports whether a volume is worth an attempt now, which then goes on: one
// that has failed waits for its time, unless another size is wanted since.
func (k *Keeper) beginExpansion(v Volume, pod types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := use{v.ID, pod}
	e := k.expansions[key]
	if e == nil {
		e = &expansion{again: retry.Backoff{First: firstExpansion, Soon: lastExpansion, Most: lastExpansion}}
		k.expansions[key] = e
	}
	if e.busy || e.inUse || e.timer != nil && e.wanted == wanted(v) {
		return false
	}
	e.busy = true
	return true
}

// forgetExpansion ends the attempts to make a volume grow.
func (k *Keeper) forgetExpansion(u use) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.expansions[u]; e != nil {
		if e.timer != nil {
			e.timer.Stop()
		}
		delete(k.expansions, u)
	}
}

// expandLater has a volume that could not grow tried again, and tells the API server, as a
// kubelet does: if it never will, or if the driver has given up and its user wants another
// size meanwhile, it is the controller's turn.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1790-recover-resize-failure
func (k *Keeper) expandLater(ctx context.Context, v Volume, u Use, r Resizer, err error) error {
	f := &ExpandError{}
	errors.As(err, &f)
	key := use{v.ID, u.Pod.UID}
	want, has := v.claim.Spec.Resources.Requests.Storage(), v.Capacity.Storage()
	k.mu.Lock()
	e := k.expansions[key]
	if e == nil { // the pod has gone
		k.mu.Unlock()
		return nil
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	infeasible := f.Infeasible || f.Final && e.final && want.Cmp(*has) != 0
	e.busy, e.wanted, e.final, e.inUse, e.timer = false, wanted(v), f.Final, f.InUse, nil
	if !infeasible && !f.InUse {
		e.timer = time.AfterFunc(e.again.Next(0), func() { k.expandAgain(key, e, u) })
	}
	k.mu.Unlock()
	if r == nil || !f.Final || resizing(v) == "" {
		return nil
	}
	return r.ResizeFailed(ctx, v.claim, infeasible, "failed to expand pvc with "+err.Error())
}

// expandAgain is the next attempt.
func (k *Keeper) expandAgain(key use, e *expansion, u Use) {
	k.mu.Lock()
	current := k.expansions[key] == e
	if current {
		e.timer = nil
	}
	k.mu.Unlock()
	for i := range u.Pod.Spec.Volumes {
		if vol := &u.Pod.Spec.Volumes[i]; current && vol.Name == u.Volume {
			_ = k.Refresh(u.Pod, vol, "") // it tells of errors itself
		}
	}
}
