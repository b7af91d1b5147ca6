package object

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keyring"
)

// PullSecrets returns the credentials for an image from the pod's imagePullSecrets, the most specific match first. The name of the image
// must be complete, and have no tag and no digest. The second result contains the names of Secrets that could not be read. The pull
// continues without these Secrets, because the registry may allow anonymous pulls. See
// https://kubernetes.io/docs/concepts/containers/images/#specifying-imagepullsecrets-on-a-pod.
func (c *Cache) PullSecrets(ctx context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string) {
	if len(pod.Spec.ImagePullSecrets) == 0 {
		return nil, nil
	}
	waits, _ := c.register(pod, false)
	if !isStatic(pod) && waitAll(ctx, waits) != nil {
		return nil, nil
	}
	var ring keyring.Ring
	missing = ring.AddPullSecrets(pod, c.Secret, keyring.LogPullSecret(c.cfg.Log, pod, image))
	return ring.Lookup(image), missing
}
