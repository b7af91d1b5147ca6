package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/test/cluster"
)

// A signer is a CA that signs PodCertificateRequests.
type signer struct {
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newSigner(t *testing.T, name string) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, &x509.Certificate{Subject: pkix.Name{CommonName: name}}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{name, cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// served returns the API version in which the control plane serves trust bundles and certificate requests.
func served() string {
	if cluster.IsFormer() {
		return "v1beta1"
	}
	return "v1"
}

// signing returns a watch function and an update function for the requests of a namespace in the served version.
func signing(c *cluster.Cluster, ns string) (
	watches func(context.Context, metav1.ListOptions) (watch.Interface, error),
	update func(context.Context, *certificates.PodCertificateRequest) error,
) {
	if !cluster.IsFormer() {
		api := c.Admin().CertificatesV1().PodCertificateRequests(ns)
		return api.Watch, func(ctx context.Context, r *certificates.PodCertificateRequest) error {
			_, err := api.UpdateStatus(ctx, r, metav1.UpdateOptions{})
			return err
		}
	}
	api := c.Admin().CertificatesV1beta1().PodCertificateRequests(ns)
	return api.Watch, func(ctx context.Context, r *certificates.PodCertificateRequest) error {
		former, err := api.Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		former.Status = certificatesv1beta1.PodCertificateRequestStatus(r.Status)
		_, err = api.UpdateStatus(ctx, former, metav1.UpdateOptions{})
		return err
	}
}

// requestOf returns the PodCertificateRequest of an event, whose object may have either API version. The result is nil if the object has
// another type.
func requestOf(o runtime.Object) *certificates.PodCertificateRequest {
	switch r := o.(type) {
	case *certificates.PodCertificateRequest:
		return r
	case *certificatesv1beta1.PodCertificateRequest:
		return &certificates.PodCertificateRequest{ObjectMeta: r.ObjectMeta, Spec: certificates.PodCertificateRequestSpec{
			PodName: r.Spec.PodName, ServiceAccountName: r.Spec.ServiceAccountName, StubPKCS10Request: r.Spec.StubPKCS10Request,
		}, Status: certificates.PodCertificateRequestStatus(r.Status)}
	}
	return nil
}

// bundle returns a ClusterTrustBundle with the given certificates.
func (s *signer) bundle(version, stage string, pems ...string) string {
	return fmt.Sprintf("apiVersion: certificates.k8s.io/%s\nkind: ClusterTrustBundle\nmetadata: {name: %q, labels: {stage: %s}}\nspec:\n  signerName: %s\n  trustBundle: |\n%s---\n",
		served(), strings.ReplaceAll(s.name, "/", ":")+":"+version, stage, s.name, indent("    ", strings.TrimSpace(strings.Join(pems, ""))))
}

// answer waits for a number of requests of a pod, and issues a certificate for each.
func (s *signer) answer(t *testing.T, c *cluster.Cluster, ns, pod string, requests int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	watches, update := signing(c, ns)
	w, err := watches(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.podName", pod).String()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		r := requestOf(e.Object)
		if r == nil || e.Type != watch.Added || len(r.Status.Conditions) > 0 {
			continue
		}
		proof, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now().Add(-time.Minute).Truncate(time.Second)
		end := begin.Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			Subject: pkix.Name{CommonName: r.Spec.PodName + "." + r.Spec.ServiceAccountName}, SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: begin, NotAfter: end,
		}, s.cert, proof.PublicKey, s.key)
		if err != nil {
			t.Fatal(err)
		}
		from, refresh, to := metav1.NewTime(begin), metav1.NewTime(begin.Add(30*time.Minute)), metav1.NewTime(end)
		r.Status = certificates.PodCertificateRequestStatus{
			Conditions:       []metav1.Condition{{Type: certificates.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue, Reason: "Test", Message: "of a test", LastTransitionTime: from}},
			CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), NotBefore: &from, BeginRefreshAt: &refresh, NotAfter: &to,
		}
		if err := update(ctx, r); err != nil {
			t.Fatal(err)
		}
		if requests--; requests == 0 {
			return
		}
	}
	t.Fatalf("pod %s requests no certificate\n%s", pod, c.Describe("-n", ns, "pod", pod))
}

// TestCertificates checks that a pod gets certificates and trust bundles from a real API server. The pod must have both after a reboot
// without a network.
func TestCertificates(t *testing.T) {
	c, n, ns := join(t)
	s := newSigner(t, ns+".example.com/mesh")
	other := newSigner(t, ns+".example.com/other")
	c.Apply(t, s.bundle("a", "live", s.pem)+s.bundle("b", "test", other.pem))
	t.Cleanup(func() { c.Kubectl(t, "delete", "clustertrustbundles", "--field-selector=spec.signerName="+s.name) })
	spec := strings.NewReplacer("SIGNER", s.name, "BUNDLE", strings.ReplaceAll(s.name, "/", ":")+":b").Replace(`volumes:
- name: creds
  projected:
    sources:
    - podCertificate: {signerName: SIGNER, keyType: ED25519, maxExpirationSeconds: 86400, credentialBundlePath: bundle.pem}
    - podCertificate: {signerName: SIGNER, keyType: ECDSAP256, keyPath: key.pem, certificateChainPath: chain.pem}
    - clusterTrustBundle: {signerName: SIGNER, labelSelector: {matchLabels: {stage: live}}, path: trust/live.pem}
    - clusterTrustBundle: {name: "BUNDLE", path: trust/one.pem}
    - clusterTrustBundle: {name: none, optional: true, path: trust/none.pem}`)
	c.Apply(t, pod(ns, "certified", spec, "volumeMounts: [{name: creds, mountPath: /creds}]", "sleep"))
	s.answer(t, c, ns, "certified", 2)
	c.AwaitReady(t, ns, "certified")

	cat := func(file string) string { return inside(n, ns, "certified", "cat", "/creds/"+file) }
	roots := x509.NewCertPool()
	roots.AddCert(s.cert)
	serials := func() string {
		bundle := cat("bundle.pem")
		one, err := tls.X509KeyPair([]byte(bundle), []byte(bundle))
		if err != nil {
			t.Fatalf("%v\n%s", err, bundle)
		}
		two, err := tls.X509KeyPair([]byte(cat("chain.pem")), []byte(cat("key.pem")))
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range []tls.Certificate{one, two} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil || pair.Leaf.Subject.CommonName != "certified.default" {
				t.Error(pair.Leaf.Subject, err)
			}
		}
		return fmt.Sprint(one.Leaf.SerialNumber, two.Leaf.SerialNumber)
	}
	before := serials()
	trusts := func(file string, pems ...string) bool {
		has := cat("trust/" + file)
		for _, p := range pems {
			if !strings.Contains(has, strings.TrimSpace(p)) {
				return false
			}
		}
		return strings.Count(has, "BEGIN") == len(pems)
	}
	if !trusts("live.pem", s.pem) || !trusts("one.pem", other.pem) || !trusts("none.pem") {
		t.Errorf("the trust bundles are %s\n%s\n%s", cat("trust/live.pem"), cat("trust/one.pem"), cat("trust/none.pem"))
	}
	c.Apply(t, s.bundle("a", "live", s.pem, other.pem))
	n.Await("the bundle to reach the pod", func() bool { return trusts("live.pem", s.pem, other.pem) })
	key := strings.Split(cat("key.pem"), "\n")[1]
	files, err := filepath.Glob(filepath.Join(n.Disk, "state/islet.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no database: %v", err)
	}
	for _, f := range files {
		if contains(t, f, key) {
			t.Errorf("%s contains a key in plain text", f)
		}
	}

	n.Cut(t)
	n.Reboot()
	n.Start()
	n.WaitReady("certified")
	if after := serials(); after != before {
		t.Errorf("after a reboot the certificates are %s, not %s", after, before)
	}
	if !trusts("live.pem", s.pem, other.pem) || !trusts("one.pem", other.pem) || !trusts("none.pem") {
		t.Error("the trust bundles differ after a reboot")
	}
	n.Restore(t)
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
}
