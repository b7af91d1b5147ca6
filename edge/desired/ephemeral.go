package desired

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

// ErrEnding is returned for a change of a pod that is ending.
var ErrEnding = errors.New("it is ending")

// AddEphemeral adds an ephemeral container to a running pod. The function add returns a copy of the pod with the container; it may be
// called more than once. The pod keeps its ephemeral containers until it ends, also if its source reports it again without them. The API
// server adds the containers of its own pods.
func (d *Desired) AddEphemeral(ctx context.Context, uid types.UID, add func(*v1.Pod) (*v1.Pod, error)) error {
	return d.applyEdit(ctx, func(next rows, _ map[string][]blockedPod) error {
		row, ok := next[uid]
		switch {
		case !ok:
			return fmt.Errorf("pod %s: %w", uid, ErrNotFound)
		case row.Source == API:
			return fmt.Errorf("pod %s: %w: the API server", nameOf(row.Pod), ErrForeign)
		case row.Deleting:
			return fmt.Errorf("pod %s: %w", nameOf(row.Pod), ErrEnding)
		}
		pod, err := add(row.Pod)
		if err != nil {
			return err
		}
		row.Pod = pod
		next[uid] = row
		return nil
	})
}

// withEphemeral returns a pod of a source with the ephemeral containers of its row. Manifests have none, so a source other than the API
// server does not remove them.
func (p SourcePod) withEphemeral(source string, row store.Pod) *v1.Pod {
	if source == API || row.Pod == p.Pod || row.Deleting || len(row.Pod.Spec.EphemeralContainers) == 0 {
		return p.Pod
	}
	pod := p.Pod.DeepCopy()
	pod.Spec.EphemeralContainers = row.Pod.Spec.EphemeralContainers
	return pod
}

// withoutEphemeral returns the pod of a row for its next start, without ephemeral containers.
func withoutEphemeral(row store.Pod) *v1.Pod {
	if row.Source == API || len(row.Pod.Spec.EphemeralContainers) == 0 {
		return row.Pod
	}
	pod := row.Pod.DeepCopy()
	pod.Spec.EphemeralContainers = nil
	return pod
}
