package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// syncMirrorPod creates, updates or deletes the mirror pod of a static pod, so that it has the manifest and the status of the static pod.
// See
// https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/.
func (o *Outbox) syncMirrorPod(ctx context.Context, it *item, now item) error {
	owner := o.NodeUID()
	switch {
	case now.server == nil && now.manifest == nil:
		return nil
	case now.manifest == nil && !o.SourcesReported(): // a source may still deliver the pod
		o.retryLater(it)
		return nil
	case now.manifest == nil, now.server != nil && (now.server.deleting || now.isOutdated()):
		if err := o.delete(ctx, it, now.server.uid); err != nil || now.manifest == nil {
			return err
		}
		now.server = nil
	}
	if now.server == nil {
		if owner == "" {
			o.retryLater(it)
			return nil
		}
		p := &v1.Pod{}
		m, err := kube.Create(ctx, o.Client, mirrorOf(now.manifest, owner))
		if apierrors.IsAlreadyExists(err) { // use the existing mirror pod of this node
			have, cannot := kube.Get[v1.Pod](ctx, o.Client, now.name.Namespace, now.name.Name)
			switch {
			case apierrors.IsForbidden(cannot): // a pod of another node
			case cannot != nil:
				err = cannot
			case have.Annotations[v1.MirrorPodAnnotationKey] != "" && have.Spec.NodeName == o.Node:
				p, m, err = have, &have.ObjectMeta, nil
			}
		}
		if err != nil {
			return fmt.Errorf("create the mirror pod of %s: %w", now.name, err)
		}
		now.server = serverPodOf(m, p.Status)
		o.mu.Lock()
		it.recordServerPod(now.server)
		o.mu.Unlock()
	}
	if now.wantedStatus == nil {
		return nil
	}
	return o.patch(ctx, it, now)
}

// isOutdated reports whether the mirror pod on the server must be replaced: it was created from another manifest, or it has ended and the
// static pod runs again. The server accepts no status in which a container runs that was terminated and never restarts.
func (it *item) isOutdated() bool {
	return it.server.hash != it.manifest.Annotations[keys.ConfigHash] ||
		it.wantedStatus != nil && hasEnded(&it.server.status) && !hasEnded(it.wantedStatus)
}

// retryLater schedules another attempt. At the time of that attempt, all sources may have reported, or the UID of the Node may be known.
func (o *Outbox) retryLater(it *item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it.dueWithin(normalDelay)
}

// mirrorOf returns the mirror pod of a static pod.
func mirrorOf(p *v1.Pod, owner types.UID) *v1.Pod {
	m := &v1.Pod{Spec: p.Spec, ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: podspec.MirrorName(p), Labels: p.Labels, Annotations: maps.Clone(p.Annotations),
	}}
	hideOwn(&m.Spec)
	m.Annotations[v1.MirrorPodAnnotationKey] = p.Annotations[keys.ConfigHash]
	yes := true
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.Spec.NodeName, UID: owner, Controller: &yes}}
	return m
}

// hideOwn removes references to ConfigMaps, Secrets and claims from the spec of a mirror pod. On this node, such references mean objects
// from manifests. An API server would interpret them as references to its own objects, and rejects such mirror pods. hideOwn replaces the
// volumes by emptyDirs, and removes the values of the variables. See
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction.
func hideOwn(spec *v1.PodSpec) {
	own := false
	podspec.VisitReferences(spec, func(string, string) { own = true })
	if !own {
		return
	}
	*spec = *spec.DeepCopy()
	spec.ImagePullSecrets = nil
	for i := range spec.Volumes {
		v := &spec.Volumes[i].VolumeSource
		named := v.ConfigMap != nil || v.Secret != nil || v.PersistentVolumeClaim != nil
		if v.Projected != nil {
			named = slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool {
				return s.ConfigMap != nil || s.Secret != nil
			})
		}
		if named {
			*v = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
		}
	}
	for _, c := range podspec.Containers(spec) {
		c.EnvFrom = nil
		for i := range c.Env {
			if f := c.Env[i].ValueFrom; f != nil && (f.ConfigMapKeyRef != nil || f.SecretKeyRef != nil) {
				c.Env[i].ValueFrom = nil
			}
		}
	}
}
