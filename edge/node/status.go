package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/patch"
)

// maxImageNames is the maximum number of reported names of an image, as in a kubelet.
const maxImageNames = 5

// A reporter sends the status of the Node.
type reporter struct {
	*Node
	server      *v1.Node          // the server's version; nil if unknown
	seenVersion string            // the newest version whose content is known; the watch starts there
	reportedAt  time.Time         // time of the last report; zero if the Node has not been reported since the agent started
	isOutdated  bool              // other programs have changed the Node since it was read
	reverted    int               // number of reverted changes of other programs since the last tick
	readers     []chan<- struct{} // callers of Refresh
}

// reportStatus compares the current status with the server's and sends the differences, with new heartbeats. If nothing differs, it sends
// the heartbeats only when they are due.
func (r *reporter) reportStatus(ctx context.Context) error {
	if err := r.keepAnnotations(ctx); err != nil {
		return err
	}
	facts, err := r.Facts(ctx)
	if err != nil {
		r.Log.Warn("the state of this machine cannot be reported", "error", err)
		return nil
	}
	now := r.newStatus(facts, r.server.Status)
	data, err := patch.Status("", r.server.Status, now)
	if err != nil {
		return err
	}
	if data == nil && !r.reportedAt.IsZero() && time.Since(r.reportedAt) < r.ReportEvery {
		r.setInUse(now.VolumesInUse)
		r.Reported(now.Capacity)
		return nil
	}
	beat := metav1.NewTime(r.Now().Truncate(time.Second))
	for i := range now.Conditions {
		if r.ownsCondition(now.Conditions[i].Type) {
			now.Conditions[i].LastHeartbeatTime = beat
		}
	}
	if data, err = patch.Status("", r.server.Status, now); err != nil {
		return err
	}
	if data == nil { // this is the second report within a second, or the Node was created within this second
		r.setInUse(now.VolumesInUse)
		return nil
	}
	m, err := kube.Patch[v1.Node](ctx, r.Client, "", r.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report the status of the Node: %w", err)
	}
	if m.UID != r.server.UID {
		return errDeleted // another program has created the Node again
	}
	r.server, r.reportedAt = &v1.Node{ObjectMeta: *m, Spec: r.server.Spec, Status: now}, time.Now()
	r.tellReady(&now)
	r.setInUse(now.VolumesInUse)
	r.Reported(now.Capacity)
	return nil
}

// withExtendedResources returns the node's own resources and the extended resources of the given capacity. Other programs advertise
// extended resources. Their whole amount is allocatable, as in a kubelet. See
// https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/.
func withExtendedResources(own, capacity v1.ResourceList) v1.ResourceList {
	list := extendedResources(capacity)
	maps.Copy(list, own)
	return list
}

// extendedResources returns the resources in a capacity that other programs advertise. The name of such a resource contains a domain.
func extendedResources(capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range capacity {
		if strings.Contains(string(name), "/") {
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// newStatus returns the new status of the Node. It keeps the parts that other programs set: conditions,
// resources, attached volumes, and the addresses of a cloud provider.
func (n *Node) newStatus(f Facts, before v1.NodeStatus) v1.NodeStatus {
	st := before
	st.Capacity, st.Allocatable = withExtendedResources(f.Capacity, before.Capacity), withExtendedResources(f.Allocatable, before.Capacity)
	if len(f.Addresses) > 0 && !(n.CloudAddresses && len(before.Addresses) > 0) {
		st.Addresses = f.Addresses
	}
	st.NodeInfo, st.RuntimeHandlers, st.Features = f.Info, f.RuntimeHandlers, f.Features
	st.DeclaredFeatures, st.VolumesInUse = f.Declared, f.VolumesInUse
	st.DaemonEndpoints.KubeletEndpoint.Port = n.Port
	st.Images = n.limitImages(f.Images)
	st.Conditions = nil
	for _, c := range before.Conditions {
		if !n.ownsCondition(c.Type) {
			st.Conditions = append(st.Conditions, c)
		}
	}
	for _, c := range slices.Concat(newConditions(f), f.Conditions, n.Duplicates.Conditions()) {
		c.LastTransitionTime = metav1.NewTime(n.Now().Truncate(time.Second))
		c.LastHeartbeatTime = c.LastTransitionTime
		for _, old := range before.Conditions {
			if old.Type == c.Type {
				c.LastHeartbeatTime = old.LastHeartbeatTime
				if old.Status == c.Status {
					c.LastTransitionTime = old.LastTransitionTime
				}
			}
		}
		st.Conditions = append(st.Conditions, c)
	}
	return st
}

// limitImages limits the number of images, and the number of names of each image.
func (n *Node) limitImages(list []v1.ContainerImage) []v1.ContainerImage {
	list = slices.Clone(list)
	if n.MaxImages >= 0 && len(list) > n.MaxImages {
		list = list[:n.MaxImages]
	}
	for i := range list {
		if len(list[i].Names) > maxImageNames {
			list[i].Names = list[i].Names[:maxImageNames]
		}
	}
	return list
}
