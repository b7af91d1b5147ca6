package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// TestControlPlane checks the features of the control plane on which other tests depend. It needs no node. A bootstrap token must yield a
// certificate, the node authorizer must be active, and pods must be scheduled.
func TestControlPlane(t *testing.T) {
	c := cluster.Start(t)
	ctx, name := t.Context(), cluster.Name(t)
	node := kubernetes.NewForConfigOrDie(bootstrap(t, c, name))

	_, err := node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Kubectl(t, "delete", "node", name) })
	_, err = node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a node created another Node: %v", err)
	}
	const status = `{"status": {"capacity": {"cpu": "1", "memory": "1Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}}`
	if _, err := node.CoreV1().Nodes().PatchStatus(ctx, name, []byte(status)); err != nil {
		t.Fatal(err)
	}
	c.AwaitNode(t, name, "to be ready, untainted and have a podCIDR", func(n *corev1.Node) bool {
		return cluster.NodeReady(n) && len(n.Spec.Taints) == 0 && n.Spec.PodCIDR != ""
	})

	ns := c.Namespace(t)
	if _, err := node.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node listed Secrets: %v", err)
	}
	c.Kubectl(t, "-n", ns, "create", "secret", "generic", "s", "--from-literal=k=v")
	if _, err := node.CoreV1().Secrets(ns).Get(ctx, "s", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node read a Secret that none of its pods uses: %v", err)
	}
	c.Apply(t, pod(ns, "p", "", `envFrom: [{secretRef: {name: s}}]`, "sleep"))
	c.AwaitPod(t, ns, "p", "to be bound", func(p *corev1.Pod) bool { return p.Spec.NodeName == name })
	// The authorizer of nodes learns by a watch of its own that the pod is bound.
	ctx, cancel := context.WithTimeout(ctx, machine.WaitTimeout)
	defer cancel()
	var last error
	if err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, last = node.CoreV1().Secrets(ns).Get(ctx, "s", metav1.GetOptions{})
		return last == nil, nil
	}); err != nil {
		t.Errorf("a node cannot read the Secret of its pod: %v", last)
	}
}

func TestControlPlaneRestart(t *testing.T) {
	c := cluster.Start(t)
	c.StopAPIServer(t)
	if _, err := c.Admin().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the stopped API server responds")
	}
	c.StartAPIServer(t)
	c.Namespace(t) // controllers work again
}

func TestProxy(t *testing.T) {
	c := cluster.Start(t)
	p := c.Proxy(t)
	conf := bootstrap(t, c, "proxied")
	conf.Host = "https://" + p.Addr
	node := kubernetes.NewForConfigOrDie(conf)
	if _, err := node.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "proxied"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("the proxy does not authenticate the node: %v", err)
	}
	t.Cleanup(func() { c.Kubectl(t, "delete", "node", "proxied") })
	p.Requests()
	p.Fail(http.StatusServiceUnavailable, 0)
	if _, err := node.CoreV1().Nodes().Get(t.Context(), "proxied", metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the proxy does not respond with the error: %v", err)
	}
	p.Heal()
	if _, err := node.CoreV1().Nodes().Get(t.Context(), "proxied", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if by, n := p.Requests(); n != 2 || by["GET /api/v1/nodes/proxied"] != 2 {
		t.Errorf("the counted requests are %v", by)
	}
}

func TestLink(t *testing.T) {
	c := cluster.Start(t)
	m := machine.New(t, "link")
	l := c.Plug(m)
	m.Boot()
	reach := func() bool {
		return m.Command("bash", "-c", "exec 3<>/dev/tcp/10.97.0.1/6443").Run() == nil
	}
	waitReach := func(what string) {
		late := time.After(machine.WaitTimeout)
		for !reach() {
			select {
			case <-late:
				t.Fatalf("the API server is unreachable: %s", what)
			default:
			}
		}
	}
	waitReach("first")
	if in, out := l.Bytes(t); in < 40 || out < 40 {
		t.Errorf("counted %d, %d bytes", in, out)
	}
	l.Cut(t)
	if reach() {
		t.Error("the API server is reachable over a cut cable")
	}
	m.PowerOff()
	m.Boot()
	if reach() {
		t.Error("a reboot restored the cut cable")
	}
	l.Restore(t)
	waitReach("restored")
	l.Silence(t)
	if m.Command("timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/10.97.0.1/6443").Run() == nil {
		t.Error("the API server is reachable over a silent link")
	}
	l.Restore(t)
	waitReach("not silent any more")
}

// bootstrap requests a node's credentials with the bootstrap token.
func bootstrap(t *testing.T, c *cluster.Cluster, name string) *rest.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	conf := c.Config()
	conf.TLSClientConfig = rest.TLSClientConfig{CAData: conf.CAData}
	conf.BearerToken = c.Token()
	requests := kubernetes.NewForConfigOrDie(conf).CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(t.Context(), &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificates.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificates.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lw := cache.NewListWatchFromClient(c.Admin().CertificatesV1().RESTClient(), "certificatesigningrequests", "",
		fields.OneTermEqualSelector("metadata.name", csr.Name))
	signed, err := watchtools.UntilWithSync(t.Context(), lw, csr, nil, func(e watch.Event) (bool, error) {
		r, ok := e.Object.(*certificates.CertificateSigningRequest)
		return ok && len(r.Status.Certificate) > 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	conf.BearerToken = ""
	conf.CertData = signed.Object.(*certificates.CertificateSigningRequest).Status.Certificate
	conf.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	return conf
}
