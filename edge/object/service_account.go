package object

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
)

// ServiceAccount reads the metadata of a service account from the API server. A node may get the service
// accounts of its pods, but it may not list or watch them (KEP-4412).
func (c *Cache) ServiceAccount(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error) {
	return kube.GetMetadata[v1.ServiceAccount](ctx, c.cfg.Client, namespace, name)
}

// AccountToken requests a token for the pod's service account, with the given audience. The service account must have the given UID. The
// token is bound to the pod and has the server's default lifetime. It is not stored.
func (c *Cache) AccountToken(
	ctx context.Context, pod *v1.Pod, account types.UID, audience string,
) (token string, expires time.Time, err error) {
	req := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: account}, Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	accounts, name := pod.Namespace, pod.Spec.ServiceAccountName
	got, err := kube.CreateSub[v1.ServiceAccount, authenticationv1.TokenRequest](ctx, c.cfg.Client, accounts, name, "token", req)
	if err != nil {
		return "", time.Time{}, err
	}
	return got.Status.Token, got.Status.ExpirationTimestamp.Time, nil
}
