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

// The most names of an image that a Node tells, as a kubelet does.
const maxImageNames = 5

// A reporter sends the status of the Node when it must.
type reporter struct {
	*Node
	server *v1.Node  // as it is there; nil: to be read
	seen   string    // the newest version of which all is known, to watch from
	told   time.Time // the last report; zero: none of this Node by this agent
	behind bool      // others have changed it since it was read
	undone int       // how many changes of others, since the last look at the facts
}

// report sends what differs, with new heartbeats; if nothing does, only when it is due.
func (r *reporter) report(ctx context.Context) error {
	if err := r.keepAnnotations(ctx); err != nil {
		return err
	}
	facts, err := r.Facts(ctx)
	if err != nil {
		r.Log.Warn("the state of this machine cannot be reported", "error", err)
		return nil
	}
	now := r.status(facts, r.server.Status)
	data, err := patch.Status("", r.server.Status, now)
	if err != nil {
		return err
	}
	if data == nil && !r.told.IsZero() && time.Since(r.told) < r.ReportEvery {
		r.setInUse(now.VolumesInUse)
		return nil
	}
	beat := metav1.NewTime(r.Now().Truncate(time.Second))
	for i := range now.Conditions {
		if r.ours(now.Conditions[i].Type) {
			now.Conditions[i].LastHeartbeatTime = beat
		}
	}
	if data, err = patch.Status("", r.server.Status, now); err != nil {
		return err
	}
	if data == nil { // twice in a second
		return nil
	}
	m, err := kube.Patch[v1.Node](ctx, r.Client, "", r.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report the status of the Node: %w", err)
	}
	if m.UID != r.server.UID {
		return errDeleted // and made again by someone else
	}
	r.server, r.told = &v1.Node{ObjectMeta: *m, Spec: r.server.Spec, Status: now}, time.Now()
	r.setInUse(now.VolumesInUse)
	return nil
}

func (n *Node) ours(t v1.NodeConditionType) bool {
	switch t {
	case v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure:
		return true
	}
	return slices.Contains(n.Own, t)
}

// withOthers adds the resources to a list that others advertise in the Node's capacity.
// All of them are allocatable, as with a kubelet.
// https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/
func withOthers(own, capacity v1.ResourceList) v1.ResourceList {
	all := foreign(capacity)
	maps.Copy(all, own)
	return all
}

// foreign are the resources of a capacity that others advertise: native ones have no
// domain.
func foreign(capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range capacity {
		if strings.Contains(string(name), "/") {
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// status is what the Node should say. What is not this node's to tell is kept: other
// conditions and resources, attached volumes, and addresses that a cloud provider sets.
func (n *Node) status(f Facts, before v1.NodeStatus) v1.NodeStatus {
	st := before
	st.Capacity, st.Allocatable = withOthers(f.Capacity, before.Capacity), withOthers(f.Allocatable, before.Capacity)
	if len(f.Addresses) > 0 && !(n.CloudAddresses && len(before.Addresses) > 0) {
		st.Addresses = f.Addresses
	}
	st.NodeInfo, st.RuntimeHandlers, st.Features = f.Info, f.RuntimeHandlers, f.Features
	st.DeclaredFeatures, st.VolumesInUse = f.Declared, f.VolumesInUse
	st.DaemonEndpoints.KubeletEndpoint.Port = n.Port
	st.Images = n.images(f.Images)
	st.Conditions = nil
	for _, c := range before.Conditions {
		if !n.ours(c.Type) {
			st.Conditions = append(st.Conditions, c)
		}
	}
	for _, c := range slices.Concat(conditions(f), f.Conditions, n.Claim.Conditions()) {
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

// conditions are those of a kubelet, in its words and order.
// https://kubernetes.io/docs/reference/node/node-status/#condition
func conditions(f Facts) []v1.NodeCondition {
	pressure := func(t v1.NodeConditionType, there bool, yes, yesMessage, no, noMessage string) v1.NodeCondition {
		if there {
			return v1.NodeCondition{Type: t, Status: v1.ConditionTrue, Reason: "KubeletHas" + yes, Message: "kubelet has " + yesMessage}
		}
		return v1.NodeCondition{Type: t, Status: v1.ConditionFalse, Reason: "KubeletHas" + no, Message: "kubelet has " + noMessage}
	}
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if len(f.NotReady) > 0 {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady", strings.Join(f.NotReady, ", ")
	}
	return []v1.NodeCondition{
		pressure(v1.NodeMemoryPressure, f.MemoryPressure, "InsufficientMemory", "insufficient memory available", "SufficientMemory", "sufficient memory available"),
		pressure(v1.NodeDiskPressure, f.DiskPressure, "DiskPressure", "disk pressure", "NoDiskPressure", "no disk pressure"),
		pressure(v1.NodePIDPressure, f.PIDPressure, "InsufficientPID", "insufficient PID available", "SufficientPID", "sufficient PID available"),
		ready,
	}
}

// images bounds the list and the names of each.
func (n *Node) images(all []v1.ContainerImage) []v1.ContainerImage {
	all = slices.Clone(all)
	if n.MaxImages >= 0 && len(all) > n.MaxImages {
		all = all[:n.MaxImages]
	}
	for i := range all {
		if len(all[i].Names) > maxImageNames {
			all[i].Names = all[i].Names[:maxImageNames]
		}
	}
	return all
}
