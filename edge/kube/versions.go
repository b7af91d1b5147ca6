package kube

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// formerVersions are the versions in which older API servers serve types of the scheme. Each has the
// fields of the newer version under the same names and numbers, so that one Go type serves both.
// Kubernetes 1.36 serves ClusterTrustBundle and PodCertificateRequest as v1beta1 only, 1.37 by
// default as v1 only.
func formerVersions() map[schema.GroupVersion][]runtime.Object {
	return map[schema.GroupVersion][]runtime.Object{
		{Group: certificatesv1.GroupName, Version: "v1beta1"}: {
			&certificatesv1.ClusterTrustBundle{}, &certificatesv1.ClusterTrustBundleList{},
			&certificatesv1.PodCertificateRequest{}, &certificatesv1.PodCertificateRequestList{},
		},
	}
}

// inVersion calls send with the version of a type that the API server serves. A server answers a
// request for another version with "not found"; then send is called with the other version, and the
// client remembers which of them was found. It takes no request of its own to discover the version,
// and follows a server that is updated or set back.
func (c *Client) inVersion(of runtime.Object, send func(schema.GroupVersionResource) error) error {
	all, err := resourcesOf(c.scheme, of)
	if err != nil {
		return err
	}
	at := all[0].GroupResource()
	c.mu.Lock()
	served, known := c.served[at]
	c.mu.Unlock()
	if !known {
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
			c.served[at] = other
			c.mu.Unlock()
			return second
		}
	}
	return err
}
