package link

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sort"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/kube"
)

// errDenied means that a certificate signing request was denied or has failed permanently.
var errDenied = errors.New("denied")

// certNames contains the host names and addresses of a serving certificate.
type certNames struct {
	dns []string
	ips []netip.Addr
}

func (n certNames) equals(other certNames) bool {
	return slices.Equal(n.dns, other.dns) && slices.Equal(n.ips, other.ips)
}

// A signingRequest contains the content of a certificate signing request. See
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/.
type signingRequest struct {
	signer string
	node   string
	usage  certificatesv1.KeyUsage // key usage in addition to digital signature
	names  certNames
	// requester contains the credentials of the client if it does not use the node's credentials. The API server records their user in the
	// request, and only requests of some users are approved automatically. Each requester therefore creates its own request.
	requester []byte
}

func clientRequest(node string, requester []byte) signingRequest {
	return signingRequest{
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth,
		node: node, requester: requester,
	}
}

func servingRequest(node string, n certNames) signingRequest {
	return signingRequest{signer: certificatesv1.KubeletServingSignerName, node: node, usage: certificatesv1.UsageServerAuth, names: n}
}

// obtainCertificate creates the signing request for a key and waits for the certificate, without a time limit. Repeated calls are safe: a
// request with the same key, content and requester has the same name, and is not created twice. While the request waits for approval, the
// caller gets the name.
func (r signingRequest) obtainCertificate(ctx context.Context, c *kube.Client, key crypto.Signer,
	waiting func(name string)) ([]byte, error) {
	csr, err := r.newObject(key)
	if err != nil {
		return nil, err
	}
	if _, err := kube.Create(ctx, c, csr); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create a certificate signing request: %w", err)
	}
	for {
		cert, err := r.waitForCertificate(ctx, c, csr.Name, waiting)
		if cert != nil || err != nil {
			return cert, err
		}
	}
}

// waitForCertificate reads the signing request and watches it until the watch ends. If waitForCertificate returns neither a certificate nor
// an error, the caller must call it again.
func (r signingRequest) waitForCertificate(ctx context.Context, c *kube.Client, name string, waiting func(name string)) ([]byte, error) {
	one := "metadata.name=" + name
	list, err := kube.List[certificatesv1.CertificateSigningRequestList](ctx, c, "", metav1.ListOptions{FieldSelector: one})
	if err != nil {
		return nil, fmt.Errorf("read certificate signing request %s: %w", name, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("certificate signing request %s was deleted", name)
	}
	if cert, err := issuedCertificate(&list.Items[0]); cert != nil || err != nil {
		return cert, err
	}
	waiting(name)
	o := metav1.ListOptions{FieldSelector: one, ResourceVersion: list.ResourceVersion}
	w, err := kube.Watch[certificatesv1.CertificateSigningRequest](ctx, c, "", o)
	if err != nil {
		return nil, fmt.Errorf("watch certificate signing request %s: %w", name, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		csr, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || e.Type == watch.Deleted {
			return nil, fmt.Errorf("watch of certificate signing request %s ended: %w", name, apierrors.FromObject(e.Object))
		}
		if cert, err := issuedCertificate(csr); cert != nil || err != nil {
			return cert, err
		}
	}
	return nil, ctx.Err()
}

// issuedCertificate returns the certificate, or nil if it is not issued yet. An error means that this request will never get a certificate.
func issuedCertificate(csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return nil, fmt.Errorf("certificate signing request %s: %w: %s: %s", csr.Name, errDenied, c.Reason, c.Message)
		}
	}
	if len(csr.Status.Certificate) == 0 {
		return nil, nil
	}
	return csr.Status.Certificate, nil
}

func (r signingRequest) newObject(key crypto.Signer) (*certificatesv1.CertificateSigningRequest, error) {
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: commonName(r.node), Organization: []string{nodesGroup}},
		DNSNames: slices.Sorted(slices.Values(r.names.dns)),
	}
	ips := slices.Clone(r.names.ips)
	sort.Slice(ips, func(i, j int) bool { return ips[i].Less(ips[j]) })
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("create a certificate request: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	content := fmt.Appendf(public, "|%s|%s|%q|%q", r.signer, r.node, template.DNSNames, template.IPAddresses)
	if len(r.requester) > 0 { // the name also depends on the private key, so that nobody can check a guessed token against the name
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		content = slices.Concat(content, private, r.requester)
	}
	digest := sha256.Sum256(content)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "node-csr-" + hex.EncodeToString(digest[:16])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: r.signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, r.usage},
		},
	}, nil
}

// nodesGroup is the group of the user of a node.
const nodesGroup = "system:nodes"

func commonName(node string) string { return "system:node:" + node }
