package storage

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/retry"
)

// Intervals between two attempts to expand a file system.
const (
	firstExpansion = time.Second
	lastExpansion  = 2 * time.Minute
)

// An ExpandError classifies the error of a failed expansion.
type ExpandError struct {
	Err error
	// Final is set if the driver does not continue the expansion.
	Final bool
	// Infeasible is set if the expansion can never succeed. It implies Final.
	Infeasible bool
	// InUse is set if the volume cannot be expanded while it is in use. It implies Final.
	InUse bool
}

// Error returns the driver's message.
func (e *ExpandError) Error() string { return e.Err.Error() }

// Unwrap returns the driver's error.
func (e *ExpandError) Unwrap() error { return e.Err }

// An expansion is the state of the last attempt to expand one pod's volume. It exists while the
// attempt is running, and after it has failed or was skipped.
type expansion struct {
	busy    bool   // an attempt is running
	sizes   string // the sizes in the last attempt, see sizeKey
	final   bool   // the last attempt failed with a Final error
	inUse   bool   // do not retry while the volume is mounted
	skipped bool   // the last attempt was for a read-only volume
	backoff retry.Backoff
	timer   *time.Timer // nil if no retry is scheduled
}

// sizeKey returns a string that contains the sizes of the volume and the claim. A new attempt may succeed when this
// string changes.
func sizeKey(v Volume) string {
	return v.Capacity.Storage().String() + " of " + v.claim.Spec.Resources.Requests.Storage().String()
}

// beginExpansion reports whether an expansion may be attempted now. If so, it marks the expansion as running. After a
// failure it returns false during the backoff, unless the size of the volume or of the claim has changed.
func (k *Mounter) beginExpansion(v Volume, pod types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := volumeUse{v.ID, pod}
	e := k.expansions[key]
	if e == nil {
		e = &expansion{backoff: retry.Backoff{FirstWindow: firstExpansion, SecondWindow: lastExpansion, MaxWindow: lastExpansion}}
		k.expansions[key] = e
	}
	if e.busy || e.inUse || (e.timer != nil || e.skipped && v.ReadOnly) && e.sizes == sizeKey(v) {
		return false
	}
	e.busy = true
	return true
}

// skipExpansion ends an attempt for a volume that the pod mounts read-only. It is not repeated for the same sizes.
func (k *Mounter) skipExpansion(v Volume, pod types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.expansions[volumeUse{v.ID, pod}]; e != nil {
		e.busy, e.skipped, e.sizes = false, true, sizeKey(v)
	}
}

// forgetExpansion cancels the retries of an expansion.
func (k *Mounter) forgetExpansion(u volumeUse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.expansions[u]; e != nil {
		if e.timer != nil {
			e.timer.Stop()
		}
		delete(k.expansions, u)
	}
}

// scheduleExpansion schedules a retry of a failed expansion and reports the failure to the API server, like a kubelet.
// It reports the expansion as infeasible if the driver's error says so. After two final errors, it also reports the
// expansion as infeasible if the claim requests another size than the volume has. The controller then continues the
// resize.
//
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1790-recover-resize-failure
func (k *Mounter) scheduleExpansion(ctx context.Context, v Volume, u Use, r Resizer, err error) error {
	f := &ExpandError{}
	errors.As(err, &f)
	key := volumeUse{v.ID, u.Pod.UID}
	want, has := v.claim.Spec.Resources.Requests.Storage(), v.Capacity.Storage()
	k.mu.Lock()
	e := k.expansions[key]
	if e == nil { // the pod was removed
		k.mu.Unlock()
		return nil
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	infeasible := f.Infeasible || f.Final && e.final && want.Cmp(*has) != 0
	e.busy, e.sizes, e.final, e.inUse, e.timer = false, sizeKey(v), f.Final, f.InUse, nil
	if !infeasible && !f.InUse {
		e.timer = time.AfterFunc(e.backoff.Next(0), func() { k.retryExpansion(key, e, u) })
	}
	k.mu.Unlock()
	if r == nil || !f.Final || resizeStatus(v) == "" {
		return nil
	}
	return r.ResizeFailed(ctx, v.claim, infeasible, "failed to expand pvc with "+err.Error())
}

// retryExpansion performs a scheduled retry.
func (k *Mounter) retryExpansion(key volumeUse, e *expansion, u Use) {
	k.mu.Lock()
	current := k.expansions[key] == e
	if current {
		e.timer = nil
	}
	k.mu.Unlock()
	for i := range u.Pod.Spec.Volumes {
		if vol := &u.Pod.Spec.Volumes[i]; current && vol.Name == u.Volume {
			_ = k.Refresh(u.Pod, vol, "") // Refresh reports its errors itself
		}
	}
}
