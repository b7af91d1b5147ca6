package kube

import (
	"fmt"
	"reflect"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// newScheme returns a scheme with the types that a node uses. Each type costs code and memory.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for gv, objects := range map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion: {
			&corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{},
			&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Secret{}, &corev1.SecretList{},
			&corev1.Service{}, &corev1.ServiceList{}, &corev1.Event{}, &corev1.EventList{},
			&corev1.ServiceAccount{}, &corev1.Namespace{},
			&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{},
		},
		coordinationv1.SchemeGroupVersion: {&coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
		certificatesv1.SchemeGroupVersion: {
			&certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequestList{},
			&certificatesv1.ClusterTrustBundle{}, &certificatesv1.ClusterTrustBundleList{},
			&certificatesv1.PodCertificateRequest{}, &certificatesv1.PodCertificateRequestList{},
		},
		authenticationv1.SchemeGroupVersion: {&authenticationv1.TokenReview{}, &authenticationv1.TokenRequest{}},
		authorizationv1.SchemeGroupVersion:  {&authorizationv1.SubjectAccessReview{}},
		resourcev1.SchemeGroupVersion:       {&resourcev1.ResourceClaim{}, &resourcev1.ResourceSlice{}},
		nodev1.SchemeGroupVersion:           {&nodev1.RuntimeClass{}, &nodev1.RuntimeClassList{}},
		storagev1.SchemeGroupVersion: {
			&storagev1.CSINode{}, &storagev1.CSIDriver{}, &storagev1.CSIDriverList{}, &storagev1.VolumeAttachment{},
		},
	} {
		s.AddKnownTypes(gv, objects...)
		metav1.AddToGroupVersion(s, gv)
	}
	for gv, objects := range formerVersions() { // added after the newer versions, because resourcesOf returns versions in this order
		s.AddKnownTypes(gv, objects...)
		metav1.AddToGroupVersion(s, gv)
	}
	s.AddKnownTypes(metav1.SchemeGroupVersion, &metav1.PartialObjectMetadata{})
	return s
}

// Object is a pointer to a type of the scheme, or to the type of its list.
type Object[T any] interface {
	*T
	runtime.Object
}

// resourcesOf returns the resources of a type, or of the items of a list type. There is one resource for each version of the type, the
// newest first.
func resourcesOf(s *runtime.Scheme, obj runtime.Object) ([]schema.GroupVersionResource, error) {
	kinds, _, err := s.ObjectKinds(obj)
	if err != nil {
		return nil, fmt.Errorf("this client does not support the type %v: %w", reflect.TypeOf(obj), err)
	}
	var out []schema.GroupVersionResource
	for _, kind := range kinds {
		if meta.IsListType(obj) {
			kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		out = append(out, plural)
	}
	return out, nil
}
