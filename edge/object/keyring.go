package object

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keyring"
)

// PullSecrets gives the credentials that the pod's imagePullSecrets have for an image,
// named in full but without tag and digest, those first that name it most exactly, and
// the names of those that could not be had: the registry may give the image to
// anybody.
// https://kubernetes.io/docs/concepts/containers/images/#specifying-imagepullsecrets-on-a-pod
func (c *Cache) PullSecrets(ctx context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string) {
	if len(pod.Spec.ImagePullSecrets) == 0 {
		return nil, nil
	}
	waits, _ := c.register(pod, false)
	if !static(pod) && wait(ctx, waits) != nil {
		return nil, nil
	}
	var all keyring.Ring
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := c.Secret(pod, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
		} else {
			err = all.AddSecret(secret)
		}
		if err != nil {
			c.cfg.Log.Warn("an image pull secret is of no use", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "secret", ref.Name, "image", image, "error", err)
		}
	}
	return all.Lookup(image), missing
}
