package outbox

import v1 "k8s.io/api/core/v1"

// Listed takes all pods that the server has of this node, whatever was known before: a
// server that was restored from a backup has older versions.
func (o *Outbox) Listed(pods []v1.Pod) {
	o.mu.Lock()
	there := map[*item]bool{}
	for i := range pods {
		it := o.itemOf(&pods[i])
		it.server = viewOf(&pods[i].ObjectMeta, *pods[i].Status.DeepCopy())
		there[it] = true
	}
	o.listed = true
	for _, it := range o.all() {
		if !there[it] {
			it.server = nil
		}
		it.soon(0)
		o.drop(it)
	}
	o.signal()
	o.mu.Unlock()
}

// Seen takes a pod that is new or was changed.
func (o *Outbox) Seen(p *v1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.see(p)
	if it.finish || it.server.deleting || it.uid == "" {
		it.soon(0)
	} else {
		it.soon(calm) // if someone wrote over the status; mostly it is an echo
	}
	o.signal()
}

// Gone takes a pod that was removed.
func (o *Outbox) Gone(p *v1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.pods[p.UID]
	if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		it = o.mirrors[nameOf(p)]
	}
	if it == nil || it.server != nil && it.server.uid != p.UID {
		return
	}
	it.server = nil
	it.soon(0)
	o.signal()
}

// itemOf finds the item of a pod of the server. The caller holds mu.
func (o *Outbox) itemOf(p *v1.Pod) *item {
	if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return o.mirrorItem(nameOf(p))
	}
	return o.podItem(nameOf(p), p.UID)
}

// see takes how the server shows a pod. The caller holds mu.
func (o *Outbox) see(p *v1.Pod) *item {
	it := o.itemOf(p)
	it.see(viewOf(&p.ObjectMeta, *p.Status.DeepCopy()))
	return it
}

// drop forgets an item of which neither side knows. The caller holds mu.
func (o *Outbox) drop(it *item) {
	if it.busy || it.server != nil || it.finish || it.manifest != nil {
		return
	}
	if it.uid == "" {
		delete(o.mirrors, it.name)
	} else {
		delete(o.pods, it.uid)
	}
}

// forgotten drops what the node has to say of a pod of the API server.
func (o *Outbox) forgotten(it *item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it.manifest, it.want, it.finish = nil, nil, false
}
