package storage

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Objects returns the API objects that volumes refer to, from this node's copies. Reads never
// block: the pod's objects were fetched before its volumes are set up. A missing object is an error
// for which apierrors.IsNotFound is true. *object.Cache implements it.
type Objects interface {
	// Claim returns a PersistentVolumeClaim in the pod's namespace that the pod refers to.
	Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error)
	// PersistentVolume returns the volume to which such a claim is bound.
	PersistentVolume(pod *v1.Pod, name string) (*v1.PersistentVolume, error)
	// VolumeSecret returns a Secret that a volume of the pod refers to.
	VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error)
	// Renew reads all objects of the pod's volumes again and waits a limited time for them.
	Renew(ctx context.Context, pod *v1.Pod) error
}
