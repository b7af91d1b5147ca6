package brake

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
)

// apiService is the Service of the API server. Nodes may read it.
const apiService = "kubernetes"

// maxReads is the maximum number of missing pods that checkVanished reads.
const maxReads = 4

// readIdentity reads the identity of the control plane: the cluster and the Node. If the parameter cluster is false, it reads only the
// Node. This is sufficient for the events of an open watch, because the server of an open watch still belongs to the same cluster.
func (b *Brake) readIdentity(ctx context.Context, cluster bool) (now Identity, err error) {
	now.Epoch = b.Epoch()
	if now.Node, err = uidOf[v1.Node](ctx, b.Client, "", b.Node); err != nil {
		return now, fmt.Errorf("read the Node %s: %w", b.Node, err)
	}
	if !cluster {
		b.mu.Lock()
		defer b.mu.Unlock()
		now.Cluster = b.state.Known.Cluster
		return now, nil
	}
	now.Cluster, err = uidOf[v1.Service](ctx, b.Client, metav1.NamespaceDefault, apiService)
	if apierrors.IsForbidden(err) { // a policy of the cluster forbids the request; the other two facts decide
		err = nil
	}
	if err != nil {
		return now, fmt.Errorf("read the Service %s: %w", apiService, err)
	}
	return now, nil
}

// uidOf returns the UID of an object, or "" if the object does not exist.
func uidOf[T any, P kube.Object[T]](ctx context.Context, c *kube.Client, namespace, name string) (types.UID, error) {
	m, err := kube.GetMetadata[T, P](ctx, c, namespace, name)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return m.UID, nil
}

// checkVanished checks a list that lacks pods. It reads some of the missing pods by name. If one of them still exists, the list was
// truncated, and checkVanished returns an error. For a pod that does not exist, the node authorizer answers Forbidden.
func (b *Brake) checkVanished(ctx context.Context, vanished []desired.Pod) error {
	for i := range min(maxReads, len(vanished)) {
		p := vanished[i*(len(vanished)-1)/max(1, min(maxReads, len(vanished))-1)].Pod
		uid, err := uidOf[v1.Pod](ctx, b.Client, p.Namespace, p.Name)
		if err != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("read pod %s/%s, which the list lacks: %w", p.Namespace, p.Name, err)
		}
		if uid == p.UID {
			return fmt.Errorf("the list of the API server lacks %d pods, but the server still has %s/%s: the list is rejected",
				len(vanished), p.Namespace, p.Name)
		}
	}
	return nil
}

// missingPods returns the number of running pods from the API server. It also returns the running pods that the list lacks, in
// the order of the given pods. Pods that are being deleted do not count.
func missingPods(pods []desired.Pod, list []desired.SourcePod) (running int, vanished []desired.Pod) {
	listed := make(map[types.UID]bool, len(list))
	for _, p := range list {
		listed[p.Pod.UID] = true
	}
	for _, p := range pods {
		if p.Source != desired.API || p.Deleting {
			continue
		}
		running++
		if !listed[p.Pod.UID] {
			vanished = append(vanished, p)
		}
	}
	return running, vanished
}

// podsToHold returns the vanished pods to put on hold. It skips a pod that has a successor on this node: a pod with the same name, or a pod
// of the same DaemonSet.
func podsToHold(vanished []desired.Pod, list []desired.SourcePod, v Verdict, before *Hold) (held []desired.Pod) {
	if v == EndAll {
		return nil
	}
	for _, p := range vanished {
		old := before != nil && slices.Contains(before.Pods, p.Pod.UID)
		if (v == HoldAll || old) && !slices.ContainsFunc(list, func(s desired.SourcePod) bool { return isSuccessor(s, p.Pod) }) {
			held = append(held, p)
		}
	}
	return held
}

func isSuccessor(s desired.SourcePod, p *v1.Pod) bool {
	if s.Ending != nil || s.Pod.Namespace != p.Namespace {
		return false
	}
	if s.Pod.Name == p.Name {
		return true
	}
	former, owner := metav1.GetControllerOf(p), metav1.GetControllerOf(s.Pod)
	return former != nil && owner != nil && former.Kind == "DaemonSet" && owner.Kind == former.Kind && owner.Name == former.Name
}
