package podcertificate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/kube"
)

var (
	errNoNode  = errors.New("the API server has no Node with this name yet")
	errDeleted = errors.New("the PodCertificateRequest was deleted before its signer answered")
	errEnded   = errors.New("the watch of the PodCertificateRequest ended")
)

// newRequest creates a key and a name for a request, and stores both. The request is sent after that, so the key of an issued certificate
// is never lost.
func (c *Certificates) newRequest(ctx context.Context, p *projection) error {
	key, err := newKey(p.wantedProjection.KeyType)
	if err != nil {
		return err
	}
	next := p.state
	next.Request, next.RequestKey = "req-"+rand.String(10), key
	c.set(ctx, p, next)
	return nil
}

// create sends the PodCertificateRequest to the API server. The server rejects the request while it does not know the pod yet, so callers
// must retry.
func (c *Certificates) create(ctx context.Context, p *projection) error {
	node := c.cfg.NodeUID()
	if node == "" {
		return errNoNode
	}
	account := cmp.Or(p.pod.Spec.ServiceAccountName, "default")
	sa, err := kube.GetMetadata[v1.ServiceAccount](ctx, c.cfg.Client, p.pod.Namespace, account)
	if err != nil {
		return fmt.Errorf("read service account %s/%s: %w", p.pod.Namespace, account, err)
	}
	proof, err := proofOf(p.RequestKey)
	if err != nil {
		return err
	}
	_, err = kube.Create(ctx, c.cfg.Client, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.pod.Namespace, Name: p.Request,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.pod.Name, UID: p.pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: p.wantedProjection.SignerName, PodName: p.pod.Name, PodUID: p.pod.UID, ServiceAccountName: account,
			ServiceAccountUID: sa.UID,
			NodeName:          types.NodeName(c.cfg.Node), NodeUID: node, MaxExpirationSeconds: p.wantedProjection.MaxExpirationSeconds,
			StubPKCS10Request: proof, UnverifiedUserAnnotations: p.wantedProjection.UserAnnotations,
		},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) { // the request exists if the answer to an earlier attempt was lost
		return fmt.Errorf("create a PodCertificateRequest: %w", err)
	}
	return nil
}

// read returns the open request, or nil if the API server does not have it. It lists the requests with a field selector for the name of the
// request and the name of this node, because the node authorizer requires both names. The result does not come from the server's cache.
func (c *Certificates) read(ctx context.Context, p *projection) (*certificatesv1.PodCertificateRequest, metav1.ListOptions, error) {
	o := metav1.ListOptions{FieldSelector: fields.AndSelectors(
		fields.OneTermEqualSelector("metadata.name", p.Request), fields.OneTermEqualSelector("spec.nodeName", c.cfg.Node),
	).String()}
	list, err := kube.List[certificatesv1.PodCertificateRequestList](ctx, c.cfg.Client, p.pod.Namespace, o)
	if err != nil {
		return nil, o, fmt.Errorf("read PodCertificateRequest %s/%s: %w", p.pod.Namespace, p.Request, err)
	}
	o.ResourceVersion = list.ResourceVersion
	if len(list.Items) == 0 {
		return nil, o, nil
	}
	return &list.Items[0], o, nil
}

// await waits until the signer has answered the open request.
func (c *Certificates) await(ctx context.Context, p *projection, created bool) error {
	r, o, err := c.read(ctx, p)
	if err == nil && r == nil && !created { // the request was never created, or it was deleted
		if err := c.create(ctx, p); err != nil {
			return err
		}
		r, o, err = c.read(ctx, p)
	}
	if err != nil {
		return err
	}
	if r == nil {
		return errDeleted
	}
	if c.applyResult(ctx, p, r) {
		return nil
	}
	soon, stop := context.WithTimeout(ctx, checkEvery) // after this time, the goroutine checks whether the current certificate has expired
	defer stop()
	w, err := kube.Watch[certificatesv1.PodCertificateRequest](soon, c.cfg.Client, p.pod.Namespace, o)
	if err != nil {
		return fmt.Errorf("watch PodCertificateRequest %s/%s: %w", p.pod.Namespace, p.Request, err)
	}
	defer w.Stop()
	began := time.Now()
	for e := range w.ResultChan() {
		switch r, ok := e.Object.(*certificatesv1.PodCertificateRequest); {
		case e.Type == watch.Error:
			return apierrors.FromObject(e.Object)
		case !ok || r.Name != p.Request:
		case e.Type == watch.Deleted:
			return errDeleted
		case c.applyResult(ctx, p, r):
			return nil
		}
	}
	if time.Since(began) < retryMax {
		return errEnded
	}
	return nil
}
