package kube

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// formerVersions returns the types of the scheme that older API servers serve in another version. Their fields have the same names and
// numbers in both versions, so one Go type is enough. Kubernetes 1.36 serves ClusterTrustBundle and PodCertificateRequest only as
// v1beta1. Kubernetes 1.37 serves them only as v1 by default.
func formerVersions() map[schema.GroupVersion][]runtime.Object {
	return map[schema.GroupVersion][]runtime.Object{
		{Group: certificatesv1.GroupName, Version: "v1beta1"}: {
			&certificatesv1.ClusterTrustBundle{}, &certificatesv1.ClusterTrustBundleList{},
			&certificatesv1.PodCertificateRequest{}, &certificatesv1.PodCertificateRequestList{},
		},
	}
}

// inVersion sends a request with the version of a resource that the API server serves. The caller passes any object of the resource's type
// to select the resource. If the API server answers "not found", inVersion tries the other version. It remembers the version that worked.
// The client therefore finds the version without additional requests, also after an upgrade or downgrade of the API server.
func (c *Client) inVersion(like runtime.Object, send func(schema.GroupVersionResource) error) error {
	all, err := resourcesOf(c.scheme, like)
	if err != nil {
		return err
	}
	at := all[0].GroupResource()
	c.mu.Lock()
	served, found := c.servedVersions[at]
	c.mu.Unlock()
	if !found {
		served = all[0]
	}
	err = send(served)
	if len(all) == 1 || !apierrors.IsNotFound(err) {
		return err
	}
	for _, other := range all {
		if other == served {
			continue
		}
		if second := send(other); !apierrors.IsNotFound(second) {
			c.mu.Lock()
			c.servedVersions[at] = other
			c.mu.Unlock()
			return second
		}
	}
	return err
}
