package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/patch"
	"github.com/islet-edge/islet/internal/podspec"
)

// sync sends requests until the server has the wanted state of one item. It works on a copy of the item. If the item changes in the
// meantime, another attempt is scheduled.
func (o *Outbox) sync(ctx context.Context, it *item) error {
	o.mu.Lock()
	now := *it
	o.mu.Unlock()
	if now.uid == "" {
		return o.syncMirrorPod(ctx, it, now)
	}
	switch {
	case now.server == nil || now.isFinished && !now.server.deleting:
		// The server does not need a report of the end in two cases: it does not have the pod, or it wants the pod to run.
		if now.isFinished {
			return o.forget(ctx, it)
		}
		if !o.IsWanted(now.uid) {
			o.dropWanted(it)
		}
		return nil
	case now.isFinished, now.server.deleting && !o.IsWanted(now.uid):
		if now.wantedStatus != nil {
			if err := o.patch(ctx, it, now); err != nil && !now.endsWithout(err) {
				return err
			}
		}
		if err := o.delete(ctx, it, now.server.uid); err != nil {
			return err
		}
		return o.forget(ctx, it)
	case now.wantedStatus != nil:
		return o.patch(ctx, it, now)
	}
	return nil
}

// lastRefusals is the number of refusals after which a pod is deleted without its last status. They take a minute.
const lastRefusals = 6

// endsWithout reports whether an ended pod is deleted although the server has not accepted its last status: the server has rejected the
// content of the status again and again. Otherwise the pod could never be deleted, and no pod with its name could replace it.
func (it *item) endsWithout(err error) bool {
	return isRefusal(err) && !apierrors.IsConflict(err) && it.refusals >= lastRefusals
}

// forget removes the pod from the node's store after a request. While it waits for the disk, it is not counted as a request, so that
// requests for other pods can be sent.
func (o *Outbox) forget(ctx context.Context, it *item) error {
	o.countRequest(-1)
	defer o.countRequest(1)
	o.wakeRun()
	return o.forgetPod(ctx, it)
}

func (o *Outbox) countRequest(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy += n
}

// forgetPod removes the pod from the node's store.
func (o *Outbox) forgetPod(ctx context.Context, it *item) error {
	o.dropWanted(it) // called before Forget, because after Forget the pod may start again
	if err := o.Forget(ctx, it.uid); err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		it.isFinished = true
		return fmt.Errorf("forget pod %s: %w: %w", it.name, errStore, err)
	}
	return nil
}

// forgetEnded forgets a pod that needs no report. It sends no request, so it does not change the back-off of the API server.
func (o *Outbox) forgetEnded(ctx context.Context, it *item) {
	err := o.forgetPod(ctx, it)
	o.mu.Lock()
	defer o.mu.Unlock()
	it.busy = false
	switch {
	case ctx.Err() != nil:
	case err != nil:
		o.retryForget(it, err)
	default:
		it.refusals = 0
	}
	o.drop(it)
	o.wakeRun()
}

// errStore is part of the errors of the node's own store. They say nothing about the API server.
var errStore = errors.New("the database of this node")

// patch sends the difference between the server's status and the wanted status. If the pod does not exist any more, patch returns no error.
func (o *Outbox) patch(ctx context.Context, it *item, now item) error {
	before, after, data, err := now.compareStatus()
	if err != nil || data == nil {
		return err
	}
	ns, name := now.name.Namespace, now.name.Name
	m, err := kube.Patch[v1.Pod](ctx, o.Client, ns, name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if apierrors.IsConflict(err) { // another pod has the name, or other clients have written to the pod at the same time
		var p *v1.Pod
		if p, err = kube.Get[v1.Pod](ctx, o.Client, now.name.Namespace, now.name.Name); err == nil {
			m, err = &p.ObjectMeta, nil
			if p.UID == now.server.uid {
				err = apierrors.NewConflict(v1.Resource("pods"), now.name.Name, fmt.Errorf("other clients write to it"))
			}
		}
	}
	if apierrors.IsNotFound(err) || err == nil && m.UID != now.server.uid {
		o.dropServer(it, now.server.uid)
		return nil
	}
	if err != nil {
		return fmt.Errorf("report the status of pod %s: %w", now.name, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	it.recordServerPod(serverPodOf(m, mergedStatus(now.server.status, before, after)))
	return nil
}

// compareStatus compares the server's status with the wanted status. It returns the node's part of each status, and the patch that changes
// the server's part to the wanted part. The patch is nil if the parts are equal.
func (it *item) compareStatus() (before, after v1.PodStatus, data []byte, err error) {
	before, after = ownPart(it.server.status, it.wantedStatus), withServerFields(ownPart(*it.wantedStatus, it.wantedStatus),
		it.server.status)
	data, err = patch.Status(it.server.uid, before, after)
	return before, after, data, err
}

// isPending reports whether the server may lack a change of the item.
func (it *item) isPending(listed bool) bool {
	switch {
	case it.isFinished || !listed && it.wantedStatus != nil:
		return true
	case it.uid == "" && it.manifest != nil && (it.server == nil || it.isOutdated()):
		return true // the mirror pod is missing, or must be replaced
	case it.wantedStatus == nil || it.server == nil:
		return false
	}
	_, _, data, err := it.compareStatus()
	return err != nil || data != nil
}

// mergedStatus returns the complete status that the server has after a patch. The arguments are the complete status before the patch, and
// the node's part before and after the patch. The answer to the request does not contain the status, and the watch may report it late.
func mergedStatus(server, before, after v1.PodStatus) v1.PodStatus {
	others := server.Conditions
	copyOwn(&server, &after)
	for _, c := range others {
		same := func(b v1.PodCondition) bool { return b.Type == c.Type }
		if !slices.ContainsFunc(before.Conditions, same) && !slices.ContainsFunc(after.Conditions, same) {
			server.Conditions = append(server.Conditions, c)
		}
	}
	return server
}

// delete deletes a pod from the server. If the pod does not exist, delete returns no error. The rate limit does not apply to deletions,
// because it was already applied to the status that was sent before the deletion.
func (o *Outbox) delete(ctx context.Context, it *item, uid types.UID) error {
	at := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(uid))}
	o.recordDeletion(uid, true) // before the request, because the watch may be faster than the answer
	err := kube.Delete[v1.Pod](kube.WithoutRateLimit(ctx), o.Client, it.name.Namespace, it.name.Name, at)
	if err != nil {
		o.recordDeletion(uid, false)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", it.name, err)
	}
	o.dropServer(it, uid)
	return nil
}

// recordDeletion records that the deletion of a pod was requested, or that the server has not accepted the request.
func (o *Outbox) recordDeletion(uid types.UID, requested bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if requested {
		o.deleted[uid] = true
	} else {
		delete(o.deleted, uid)
	}
}

func (o *Outbox) dropServer(it *item, uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if it.server != nil && it.server.uid == uid {
		it.server = nil
	}
}

// ownPart returns the part of a status that the node sets. Other clients can set the condition DisruptionTarget, too. It belongs to the
// node's part if it has a kubelet's reason, or if the status that the node has sent has this condition.
func ownPart(s v1.PodStatus, told *v1.PodStatus) (own v1.PodStatus) {
	copyOwn(&own, &s)
	own.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c v1.PodCondition) bool {
		if c.Type == v1.DisruptionTarget {
			return c.Reason != v1.PodReasonTerminationByKubelet &&
				!slices.ContainsFunc(told.Conditions, func(t v1.PodCondition) bool { return t.Type == c.Type })
		}
		return !podspec.IsNodeCondition(c.Type)
	})
	return own
}

// copyOwn copies the fields that the node sets. All other fields belong to the scheduler and to controllers, also fields that a later
// version of the API adds: a patch that removed them would be forbidden to a node.
func copyOwn(to, from *v1.PodStatus) {
	to.ObservedGeneration, to.Phase, to.Reason, to.Message = from.ObservedGeneration, from.Phase, from.Reason, from.Message
	to.Conditions, to.StartTime, to.QOSClass = from.Conditions, from.StartTime, from.QOSClass
	to.HostIP, to.HostIPs, to.PodIP, to.PodIPs = from.HostIP, from.HostIPs, from.PodIP, from.PodIPs
	to.InitContainerStatuses, to.ContainerStatuses = from.InitContainerStatuses, from.ContainerStatuses
	to.EphemeralContainerStatuses = from.EphemeralContainerStatuses
	to.AllocatedResources, to.Resources = from.AllocatedResources, from.Resources
}

// withServerFields copies the values that a node does not change from the server's status: the start time,
// the QoS class, and the times of unchanged conditions.
func withServerFields(s, server v1.PodStatus) v1.PodStatus {
	if server.StartTime != nil {
		s.StartTime = server.StartTime
	}
	if server.QOSClass != "" { // immutable
		s.QOSClass = server.QOSClass
	}
	for i, c := range s.Conditions {
		for _, old := range server.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				s.Conditions[i].LastTransitionTime, s.Conditions[i].LastProbeTime = old.LastTransitionTime, old.LastProbeTime
			}
		}
	}
	return s
}
