package storage

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Objects returns this node's copies of the API objects to which volumes refer. Its methods, except Renew, do not
// block, because the pod's objects are fetched before its volumes are set up. If an object does not exist,
// apierrors.IsNotFound is true for the error. *object.Cache implements Objects.
type Objects interface {
	// Claim returns a PersistentVolumeClaim to which the pod refers, in the pod's namespace.
	Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error)
	// PersistentVolume returns the volume to which a claim of the pod is bound.
	PersistentVolume(pod *v1.Pod, name string) (*v1.PersistentVolume, error)
	// VolumeSecret returns a Secret that a volume of the pod refers to.
	VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error)
	// Renew fetches all objects of the pod's volumes again. It waits for a limited time.
	Renew(ctx context.Context, pod *v1.Pod) error
}
