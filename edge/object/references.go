package object

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

const (
	// apiService is the service of the API server, in the namespace default.
	apiService = "kubernetes"
	// tokenSeconds is how long a token lasts for which the pod asks no time.
	tokenSeconds = 3600
)

// A set of references of a pod.
type references struct {
	objects map[store.ObjectKey]bool
	tokens  map[store.TokenKey]bool
}

// referencesOf lists what a pod names.
func referencesOf(pod *v1.Pod) references {
	r := references{objects: map[store.ObjectKey]bool{}, tokens: map[store.TokenKey]bool{}}
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
	if class := classOf(pod); class != "" && !static(pod) {
		r.objects[store.ObjectKey{Kind: classKind, Name: class}] = true
	}
	if static(pod) { // the rest of it comes from manifests, and nothing of the API is its own
		return r
	}
	if claims, err := podspec.ResourceClaims(pod); err == nil { // else one is not made yet
		for _, c := range claims {
			add(resourceKind, c.Name)
		}
	}
	podspec.Names(&pod.Spec, add)
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
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
					if k, asks := bundleKey(s.ClusterTrustBundle); asks {
						r.objects[k] = true
					}
				}
			}
		}
	}
	return r
}

func tokenKey(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) store.TokenKey {
	k := store.TokenKey{UID: pod.UID, Audience: p.Audience, Seconds: tokenSeconds}
	if p.ExpirationSeconds != nil {
		k.Seconds = *p.ExpirationSeconds
	}
	return k
}

// static reports whether a pod is the node's own: it starts before anything of the
// API is known.
func static(pod *v1.Pod) bool {
	source, ok := pod.Annotations[keys.ConfigSource]
	return ok && source != keys.SourceAPI
}
