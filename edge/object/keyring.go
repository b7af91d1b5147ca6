package object

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/keyring"
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
			err = addSecret(&all, secret)
		}
		if err != nil {
			c.cfg.Log.Warn("an image pull secret is of no use", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "secret", ref.Name, "image", image, "error", err)
		}
	}
	return all.Lookup(image), missing
}

// addSecret adds what a Secret of one of the two types for registries has.
// https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets
func addSecret(to *keyring.Ring, s *v1.Secret) error {
	from := v1.ObjectReference{Kind: keyring.Secret, Namespace: s.Namespace, Name: s.Name, UID: s.UID}
	if data, ok := s.Data[v1.DockerConfigJsonKey]; ok && s.Type == v1.SecretTypeDockerConfigJson {
		return to.AddFile(data, false, from)
	}
	if data, ok := s.Data[v1.DockerConfigKey]; ok && s.Type == v1.SecretTypeDockercfg {
		return to.AddFile(data, true, from)
	}
	return fmt.Errorf("its type is %q, not %s or %s", s.Type, v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg)
}
