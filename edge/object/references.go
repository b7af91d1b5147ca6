package object

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

const (
	// apiService is the Service of the API server, in the namespace default.
	apiService = "kubernetes"
	// tokenSeconds is the default lifetime of a token.
	tokenSeconds = 3600
)

// podReferences contains the keys of the objects and tokens that a pod references.
type podReferences struct {
	objects map[store.ObjectKey]bool
	tokens  map[store.TokenKey]bool
}

// referencesOf returns the references of a pod.
func referencesOf(pod *v1.Pod) podReferences {
	r := podReferences{objects: map[store.ObjectKey]bool{}, tokens: map[store.TokenKey]bool{}}
	add := func(kind, name string) {
		if name != "" {
			r.objects[store.ObjectKey{Kind: kind, Namespace: pod.Namespace, Name: name}] = true
		}
	}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	if links {
		r.objects[store.ObjectKey{Kind: serviceKind, Namespace: pod.Namespace}] = true
	}
	if !links || pod.Namespace != metav1.NamespaceDefault {
		r.objects[store.ObjectKey{Kind: serviceKind, Namespace: metav1.NamespaceDefault, Name: apiService}] = true
	}
	if class := classOf(pod); class != "" && !isStatic(pod) {
		r.objects[store.ObjectKey{Kind: classKind, Name: class}] = true
	}
	if isStatic(pod) { // a static pod cannot reference other API objects
		return r
	}
	if claims, err := podspec.ResourceClaims(pod); err == nil { // on an error, a claim has not been created yet
		for _, c := range claims {
			add(resourceKind, c.Name)
		}
	}
	podspec.VisitReferences(&pod.Spec, add)
	for i := range pod.Spec.Volumes {
		r.addVolume(pod, &pod.Spec.Volumes[i], add)
	}
	return r
}

// addVolume adds those references of a volume that podspec.VisitReferences does not return.
func (r podReferences) addVolume(pod *v1.Pod, v *v1.Volume, add func(kind, name string)) {
	switch {
	case v.Ephemeral != nil:
		add(claimKind, EphemeralClaim(pod, v.Name))
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		add(secretKind, v.ISCSI.SecretRef.Name)
	case v.CSI != nil:
		r.objects[store.ObjectKey{Kind: driverKind, Name: v.CSI.Driver}] = true
		if ref := v.CSI.NodePublishSecretRef; ref != nil {
			add(secretKind, ref.Name)
		}
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil {
				r.tokens[tokenKey(pod, s.ServiceAccountToken)] = true
			}
			if s.ClusterTrustBundle != nil {
				if k, selects := bundleKey(s.ClusterTrustBundle); selects {
					r.objects[k] = true
				}
			}
		}
	}
}

func tokenKey(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) store.TokenKey {
	k := store.TokenKey{UID: pod.UID, Audience: p.Audience, Seconds: tokenSeconds}
	if p.ExpirationSeconds != nil {
		k.Seconds = *p.ExpirationSeconds
	}
	return k
}

// isStatic reports whether the pod is a static pod. Static pods start before any API object is known.
func isStatic(pod *v1.Pod) bool {
	source, ok := pod.Annotations[keys.ConfigSource]
	return ok && source != keys.SourceAPI
}
