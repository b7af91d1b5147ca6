package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/keys"
)

// checkStaticReferences rejects static pods that refer to objects which only an API server has, such as service accounts. References to
// ConfigMaps, Secrets and claims are permitted. For a static pod, these objects come from manifests of the same source (package local),
// and never from the API. A kubelet since 1.34 rejects all these references ("the spec of a static Pod cannot refer to other API objects",
// https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/).
func checkStaticReferences(pod *v1.Pod, source string) field.ErrorList {
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
	if len(pod.Spec.ResourceClaims) > 0 {
		refuse("a resource claim", spec.Child("resourceClaims"))
	}
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
		{v.CSI != nil, "a CSI driver", "csi"},
		{v.Glusterfs != nil, "endpoints", "glusterfs"},
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
		case s.ServiceAccountToken != nil:
			refuse("a service account", at.Child("serviceAccountToken"))
		case s.ClusterTrustBundle != nil:
			refuse("a cluster trust bundle", at.Child("clusterTrustBundle"))
		case s.PodCertificate != nil:
			refuse("a pod certificate", at.Child("podCertificate"))
		}
	}
}

// eachContainer calls visit for the init containers and then for the containers.
func eachContainer(spec *v1.PodSpec, visit func(*field.Path, *v1.Container)) {
	p := field.NewPath("spec")
	for i := range spec.InitContainers {
		visit(p.Child("initContainers").Index(i), &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		visit(p.Child("containers").Index(i), &spec.Containers[i])
	}
}
