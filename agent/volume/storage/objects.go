package storage

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Objects gives what volumes are resolved by, as far as it is known on this node. Reading
// never waits: what a pod names was fetched before its volumes are set up. That there is
// no such object is an error for which apierrors.IsNotFound holds. edge/object's Cache is
// one.
type Objects interface {
	// Claim gives a PersistentVolumeClaim of the pod's namespace that the pod names.
	Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error)
	// PersistentVolume gives the volume that one of these is bound to.
	PersistentVolume(pod *v1.Pod, name string) (*v1.PersistentVolume, error)
	// VolumeSecret gives a Secret that the pod's volume names.
	VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error)
	// Renew has all that the pod's volumes name read again, which is waited for, but not
	// for long.
	Renew(ctx context.Context, pod *v1.Pod) error
}
