package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/keys"
)

// references refuses what a pod without an API server cannot have: references
// to other objects of the API. A kubelet refuses them since 1.34 ("the spec of
// a static Pod cannot refer to other API objects",
// https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/).
func references(pod *v1.Pod, source string) field.ErrorList {
	if source == keys.SourceAPI {
		return nil
	}
	var errs field.ErrorList
	refuse := func(object string, p *field.Path) {
		errs = append(errs, field.Forbidden(p, "a static pod may not refer to "+object+" of the API"))
	}
	spec := field.NewPath("spec")
	if pod.Spec.ServiceAccountName != "" {
		refuse("a service account", spec.Child("serviceAccountName"))
	}
	if len(pod.Spec.ImagePullSecrets) > 0 {
		refuse("a secret", spec.Child("imagePullSecrets"))
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		refuse("a resource claim", spec.Child("resourceClaims"))
	}
	eachContainer(&pod.Spec, func(p *field.Path, c *v1.Container) {
		for i, from := range c.EnvFrom {
			at := p.Child("envFrom").Index(i)
			if from.ConfigMapRef != nil {
				refuse("a config map", at.Child("configMapRef"))
			}
			if from.SecretRef != nil {
				refuse("a secret", at.Child("secretRef"))
			}
		}
		for i, env := range c.Env {
			at := p.Child("env").Index(i).Child("valueFrom")
			if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
				refuse("a config map", at.Child("configMapKeyRef"))
			}
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
				refuse("a secret", at.Child("secretKeyRef"))
			}
		}
	})
	for i := range pod.Spec.Volumes {
		volumeReferences(&pod.Spec.Volumes[i], spec.Child("volumes").Index(i), refuse)
	}
	return errs
}

func volumeReferences(v *v1.Volume, p *field.Path, refuse func(string, *field.Path)) {
	const secret = "a secret"
	for _, ref := range []struct {
		there        bool
		object, name string
	}{
		{v.ConfigMap != nil, "a config map", "configMap"},
		{v.Secret != nil, secret, "secret"},
		{v.CSI != nil, "a CSI driver", "csi"},
		{v.Glusterfs != nil, "endpoints", "glusterfs"},
		{v.PersistentVolumeClaim != nil, "a persistent volume claim", "persistentVolumeClaim"},
		{v.Ephemeral != nil, "a persistent volume claim", "ephemeral"},
		{v.AzureFile != nil, secret, "azureFile"},
		{v.CephFS != nil && v.CephFS.SecretRef != nil, secret, "cephfs"},
		{v.Cinder != nil && v.Cinder.SecretRef != nil, secret, "cinder"},
		{v.FlexVolume != nil && v.FlexVolume.SecretRef != nil, secret, "flexVolume"},
		{v.ISCSI != nil && v.ISCSI.SecretRef != nil, secret, "iscsi"},
		{v.RBD != nil && v.RBD.SecretRef != nil, secret, "rbd"},
		{v.ScaleIO != nil && v.ScaleIO.SecretRef != nil, secret, "scaleIO"},
		{v.StorageOS != nil && v.StorageOS.SecretRef != nil, secret, "storageos"},
	} {
		if ref.there {
			refuse(ref.object, p.Child(ref.name))
		}
	}
	if v.Projected == nil {
		return
	}
	for i, s := range v.Projected.Sources {
		at := p.Child("projected", "sources").Index(i)
		switch {
		case s.ConfigMap != nil:
			refuse("a config map", at.Child("configMap"))
		case s.Secret != nil:
			refuse(secret, at.Child("secret"))
		case s.ServiceAccountToken != nil:
			refuse("a service account", at.Child("serviceAccountToken"))
		case s.ClusterTrustBundle != nil:
			refuse("a cluster trust bundle", at.Child("clusterTrustBundle"))
		case s.PodCertificate != nil:
			refuse("a pod certificate", at.Child("podCertificate"))
		}
	}
}

// eachContainer visits init containers, then containers.
func eachContainer(spec *v1.PodSpec, visit func(*field.Path, *v1.Container)) {
	p := field.NewPath("spec")
	for i := range spec.InitContainers {
		visit(p.Child("initContainers").Index(i), &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		visit(p.Child("containers").Index(i), &spec.Containers[i])
	}
}
