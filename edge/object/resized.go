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

// maxResizeError bounds what is told of a failure, in bytes: it is a driver's text.
const maxResizeError = 1024

// Resized tells the API server that the file system of a claim's volume has grown to a
// size, and that nobody waits for that any more, as a kubelet does.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/284-enable-volume-expansion
func (c *Cache) Resized(ctx context.Context, claim *v1.PersistentVolumeClaim, to resource.Quantity) error {
	var over []any // also what the controller said: it leaves that to the node
	for _, t := range []v1.PersistentVolumeClaimConditionType{
		v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
	} {
		over = append(over, map[string]any{"$patch": "delete", "type": t})
	}
	return c.resize(ctx, claim, map[string]any{
		"capacity": v1.ResourceList{v1.ResourceStorage: to}, "allocatedResourceStatuses": map[string]any{string(v1.ResourceStorage): nil},
		"conditions": over,
	})
}

// Resizing tells the API server that the driver of this node makes a claim's file system
// grow.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1790-recover-resize-failure
func (c *Cache) Resizing(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	return c.resize(ctx, claim, map[string]any{"allocatedResourceStatuses": map[string]any{string(v1.ResourceStorage): v1.PersistentVolumeClaimNodeResizeInProgress}})
}

// ResizeFailed tells the API server that a claim's file system has not grown; infeasible:
// and will not. What it knows already it is not told again.
func (c *Cache) ResizeFailed(ctx context.Context, claim *v1.PersistentVolumeClaim, infeasible bool, message string) error {
	message = strings.ToValidUTF8(message[:min(len(message), maxResizeError)], "")
	status := map[string]any{"conditions": []v1.PersistentVolumeClaimCondition{{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now()), Message: message,
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

// resize changes the status of a claim, and has it read again.
func (c *Cache) resize(ctx context.Context, claim *v1.PersistentVolumeClaim, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID}, // of no other claim of that name
		"status":   status,
	})
	if err != nil {
		return err
	}
	if _, err := kube.Patch[v1.PersistentVolumeClaim](ctx, c.cfg.Client, claim.Namespace, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("tell how PersistentVolumeClaim %s/%s grows: %w", claim.Namespace, claim.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.items[store.ObjectKey{Kind: claimKind, Namespace: claim.Namespace, Name: claim.Name}]; it != nil {
		it.ask()
	}
	return nil
}
