package object

import (
	"context"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Keyring gives the credentials that the pod's imagePullSecrets have for an image,
// those first that name it most exactly, and the Secret that each is from. A secret that
// cannot be had, or read, has none: the registry may give the image to anybody.
// https://kubernetes.io/docs/concepts/containers/images/#specifying-imagepullsecrets-on-a-pod
func (c *Cache) Keyring(ctx context.Context, pod *v1.Pod, image string) ([]*api.AuthConfig, []v1.ObjectReference) {
	if len(pod.Spec.ImagePullSecrets) == 0 {
		return nil, nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, nil
	}
	waits, _ := c.register(pod, false)
	if !static(pod) && wait(ctx, waits) != nil {
		return nil, nil
	}
	var all credentials
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := c.Secret(pod, ref.Name)
		if err == nil {
			err = all.add(secret)
		}
		if err != nil {
			c.cfg.Log.Warn("an image pull secret is of no use", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "secret", ref.Name, "image", image, "error", err)
		}
	}
	return all.lookup(named.Name())
}
