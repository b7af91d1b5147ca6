package object

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
)

// maxResizeError is the maximum length of a driver's error message in a claim's status, in bytes.
const maxResizeError = 1024

// ReportResized reports to the API server that the file system of a claim's volume has reached the given size, and that the expansion is
// complete. A kubelet reports the same. See
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/284-enable-volume-expansion.
func (c *Cache) ReportResized(ctx context.Context, claim *v1.PersistentVolumeClaim, to resource.Quantity) error {
	var removals []any // includes conditions that the controller has set and the node must remove
	for _, t := range []v1.PersistentVolumeClaimConditionType{
		v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing,
		v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
	} {
		removals = append(removals, map[string]any{"$patch": "delete", "type": t})
	}
	return c.resize(ctx, claim, map[string]any{
		"capacity": v1.ResourceList{v1.ResourceStorage: to}, "allocatedResourceStatuses": map[string]any{string(v1.ResourceStorage): nil},
		"conditions": removals,
	})
}

// ReportResizing reports to the API server that this node's driver has begun to expand the file system of a
// claim's volume. See
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1790-recover-resize-failure.
func (c *Cache) ReportResizing(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	status := map[string]any{string(v1.ResourceStorage): v1.PersistentVolumeClaimNodeResizeInProgress}
	return c.resize(ctx, claim, map[string]any{"allocatedResourceStatuses": status})
}

// ResizeFailed reports to the API server that the file system of a claim's volume could not be expanded. It distinguishes an infeasible
// resize, which cannot succeed in a retry, from other failures. If the claim's status already contains the error, ResizeFailed sends
// nothing.
func (c *Cache) ResizeFailed(ctx context.Context, claim *v1.PersistentVolumeClaim, infeasible bool, message string) error {
	message = strings.ToValidUTF8(message[:min(len(message), maxResizeError)], "")
	status := map[string]any{"conditions": []v1.PersistentVolumeClaimCondition{{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(time.Now()), Message: message,
	}}}
	if infeasible {
		status["allocatedResourceStatuses"] = map[string]any{string(v1.ResourceStorage): v1.PersistentVolumeClaimNodeResizeInfeasible}
	}
	for _, has := range claim.Status.Conditions {
		if has.Type == v1.PersistentVolumeClaimNodeResizeError && has.Message == message && !infeasible {
			return nil
		}
	}
	return c.resize(ctx, claim, status)
}

// resize patches the status of a claim and requests a read of the claim.
func (c *Cache) resize(ctx context.Context, claim *v1.PersistentVolumeClaim, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID}, // makes the request fail for a new claim with the same name
		"status":   status,
	})
	if err != nil {
		return err
	}
	if _, err := kube.Patch[v1.PersistentVolumeClaim](
		ctx, c.cfg.Client, claim.Namespace, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status",
	); err != nil {
		return fmt.Errorf("report the resize of PersistentVolumeClaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.items[store.ObjectKey{Kind: claimKind, Namespace: claim.Namespace, Name: claim.Name}]; it != nil {
		it.requestRead()
	}
	return nil
}
