package outbox

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodsListed receives all pods of this node that the server has. They replace all known versions, because a server that was restored from a
// backup has older versions.
func (o *Outbox) PodsListed(pods []v1.Pod) {
	o.mu.Lock()
	listed := map[*item]bool{}
	for i := range pods {
		it := o.itemOf(&pods[i])
		it.server = serverPodOf(&pods[i].ObjectMeta, *pods[i].Status.DeepCopy())
		listed[it] = true
	}
	o.listed = true
	clear(o.deleted)
	for _, it := range o.allItems() {
		if !listed[it] {
			it.server = nil
		}
		it.dueWithin(0)
		o.drop(it)
	}
	o.wakeRun()
	o.mu.Unlock()
}

// PodSeen receives a new or changed pod.
func (o *Outbox) PodSeen(p *v1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.observePod(p)
	if o.deleted[p.UID] && it.server.deleting && !it.isFinished {
		return // the event is older than the deletion, or finalizers delay the deletion: another request would change nothing
	}
	if it.isFinished || it.server.deleting || it.uid == "" {
		it.dueWithin(0)
	} else {
		it.dueWithin(normalDelay) // usually the node itself has made the change, but another client may have overwritten the status
	}
	o.wakeRun()
}

// PodGone receives a removed pod.
func (o *Outbox) PodGone(p *v1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.deleted, p.UID)
	it := o.pods[p.UID]
	if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		it = o.mirrors[serverName(p)]
	}
	if it == nil || it.server != nil && it.server.uid != p.UID {
		return
	}
	it.server = nil
	it.dueWithin(0)
	o.wakeRun()
}

// Has reports whether the API server has a pod. It returns true until the server has listed its pods.
func (o *Outbox) Has(uid types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.pods[uid]
	return !o.listed || it != nil && it.server != nil
}

// itemOf returns the item of a pod from the server. The caller must hold mu.
func (o *Outbox) itemOf(p *v1.Pod) *item {
	if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return o.mirrorItem(serverName(p))
	}
	return o.podItem(serverName(p), p.UID)
}

// serverName returns the name of a pod from the server.
func serverName(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// observePod records the server's version of a pod and returns the pod's item. The caller must hold mu.
func (o *Outbox) observePod(p *v1.Pod) *item {
	it := o.itemOf(p)
	it.recordServerPod(serverPodOf(&p.ObjectMeta, *p.Status.DeepCopy()))
	return it
}

// drop removes an item if neither the node nor the server has the pod. The caller must hold mu.
func (o *Outbox) drop(it *item) {
	if it.busy || it.server != nil || it.isFinished || it.manifest != nil {
		return
	}
	if it.uid == "" {
		delete(o.mirrors, it.name)
	} else {
		delete(o.pods, it.uid)
	}
}

// dropWanted removes the manifest and the status of a pod from its item, so that no further status is sent.
func (o *Outbox) dropWanted(it *item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it.manifest, it.wantedStatus, it.isFinished = nil, nil, false
}
