package agent

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
)

// sweep removes what is left on disk of pods that are neither wanted nor there:
// directories, mounts, logs. It is called once all sources have spoken.
func (a *agent) sweep(ctx context.Context) {
	keep := func(uid types.UID) bool {
		seen := a.observer.Pod(uid)
		_, wanted := a.desired.Get(uid)
		return wanted || len(seen.Sandboxes)+len(seen.Containers) > 0
	}
	if err := errors.Join(a.volumes.Sweep(ctx, keep), a.logs.Sweep(ctx, keep)); err != nil {
		a.log.Warn("not everything of pods that are gone could be removed", "error", err)
	}
}
