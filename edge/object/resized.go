package object

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
)

// Resized tells the API server that the file system of a claim's volume has grown to a
// size, and that nobody waits for that any more, as a kubelet does.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/284-enable-volume-expansion
func (c *Cache) Resized(ctx context.Context, claim *v1.PersistentVolumeClaim, to resource.Quantity) error {
	over := func(t v1.PersistentVolumeClaimConditionType) map[string]any {
		return map[string]any{"$patch": "delete", "type": t}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID}, // of no other claim of that name
		"status": map[string]any{
			"capacity": v1.ResourceList{v1.ResourceStorage: to}, "allocatedResourceStatuses": map[string]any{string(v1.ResourceStorage): nil},
			"conditions": []any{over(v1.PersistentVolumeClaimFileSystemResizePending), over(v1.PersistentVolumeClaimNodeResizeError)},
		},
	})
	if err != nil {
		return err
	}
	if _, err := kube.Patch[v1.PersistentVolumeClaim](ctx, c.cfg.Client, claim.Namespace, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("tell that PersistentVolumeClaim %s/%s has grown: %w", claim.Namespace, claim.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.items[store.ObjectKey{Kind: claimKind, Namespace: claim.Namespace, Name: claim.Name}]; it != nil {
		it.ask()
	}
	return nil
}
