package k3s

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Address is the host and port at which the server of Start listens.
const Address = cluster.Address + ":6443"

// bootstrapToken is a token that k3s token create could have printed, without the hash of the CA.
const bootstrapToken = "k3stok.0123456789abcdef"

// shared is the server of all tests of a program.
var shared *Server

// Start returns the control plane of this test program and its server. The first call starts both. The egress-selector-mode is agent. The
// control plane's host cannot reach the nodes' kubelets except through the tunnels.
func Start(t testing.TB) (*cluster.Cluster, *Server) {
	t.Helper()
	pki, err := NewPKI()
	if err != nil {
		t.Fatal(err)
	}
	const egress = "agent"
	ctx, stop := context.WithCancel(context.Background())
	logrus.SetOutput(io.Discard) // remotedialer writes lines for each connection
	tlsDir := cluster.Dir + "/tls/"
	c := cluster.StartVariant(t, cluster.Variant{
		Certify: func(c *cluster.Cluster) error { return pki.write(c.Path(""), cluster.Dir, Address, egress) },
		APIServer: []string{
			"--bind-address=127.0.0.1", "--secure-port=6444", "--anonymous-auth=false",
			"--client-ca-file=" + tlsDir + "client-ca.crt",
			"--tls-cert-file=" + tlsDir + "serving-kube-apiserver.crt",
			"--tls-private-key-file=" + tlsDir + "serving-kube-apiserver.key",
			"--kubelet-certificate-authority=" + tlsDir + "server-ca.crt",
			"--kubelet-client-certificate=" + tlsDir + "client-kube-apiserver.crt",
			"--kubelet-client-key=" + tlsDir + "client-kube-apiserver.key",
			"--proxy-client-cert-file=" + tlsDir + "client-auth-proxy.crt",
			"--proxy-client-key-file=" + tlsDir + "client-auth-proxy.key",
			"--requestheader-client-ca-file=" + tlsDir + "request-header-ca.crt",
			"--requestheader-allowed-names=system:auth-proxy",
			"--egress-selector-config-file=" + cluster.Dir + "/etc/egress-selector-config.yaml",
		},
		Controllers: []string{
			"--client-ca-file=" + tlsDir + "client-ca.crt",
			"--requestheader-client-ca-file=" + tlsDir + "request-header-ca.crt",
			"--root-ca-file=" + tlsDir + "server-ca.crt",
			"--cluster-signing-cert-file=", "--cluster-signing-key-file=",
			"--cluster-signing-kube-apiserver-client-cert-file=" + tlsDir + "client-ca.crt",
			"--cluster-signing-kube-apiserver-client-key-file=" + tlsDir + "client-ca.key",
			"--cluster-signing-kubelet-client-cert-file=" + tlsDir + "client-ca.crt",
			"--cluster-signing-kubelet-client-key-file=" + tlsDir + "client-ca.key",
			"--cluster-signing-kubelet-serving-cert-file=" + tlsDir + "server-ca.crt",
			"--cluster-signing-kubelet-serving-key-file=" + tlsDir + "server-ca.key",
			"--cluster-signing-legacy-unknown-cert-file=" + tlsDir + "server-ca.crt",
			"--cluster-signing-legacy-unknown-key-file=" + tlsDir + "server-ca.key",
		},
		Serve: func(c *cluster.Cluster) (err error) {
			if err := c.Block("10250"); err != nil {
				return err
			}
			shared, err = serve(ctx, c, pki, Address, egress)
			return err
		},
		Stop: stop,
		AllowJoin: func(c *cluster.Cluster) error {
			shared.Ready(ctx)
			return allowJoin(ctx, c.Admin())
		},
	})
	return c, shared
}

// serve starts a server on the control plane's host. It runs until the context ends.
func serve(ctx context.Context, c *cluster.Cluster, pki *PKI, address, egress string) (*Server, error) {
	client, err := adminOf(c, pki)
	if err != nil {
		return nil, err
	}
	s, err := New(Config{PKI: pki, Address: address, API: apiServer, Client: client, Dial: c.Dial, Egress: egress, Name: "control",
		Passwords: Passwords{Server: "server-secret-0123456789"}})
	if err != nil {
		return nil, err
	}
	l, err := c.ListenOn(":" + strings.TrimPrefix(address, cluster.Address+":"))
	if err != nil {
		return nil, err
	}
	go func() {
		if err := s.Serve(ctx, l); err != nil {
			panic(fmt.Sprintf("the server on %s: %v", address, err))
		}
	}()
	return s, nil
}

// adminOf returns the server's own client, which connects to the API server and not to the server.
func adminOf(c *cluster.Cluster, pki *PKI) (*kubernetes.Clientset, error) {
	cert, err := tls.LoadX509KeyPair(c.Path("tls/client-admin.crt"), c.Path("tls/client-admin.key"))
	if err != nil {
		return nil, err
	}
	chain, key, err := encodePair(cert)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(&rest.Config{Host: "https://" + apiServer, Dial: c.Dial, QPS: 1000, Burst: 1000,
		TLSClientConfig: rest.TLSClientConfig{CAData: pki.server.PEM(), CertData: chain, KeyData: key}})
}

// Another starts a second server of the same cluster on another port, until the test ends. It has its own lies and tunnels, so that tests
// can run in parallel. The API server knows only the first server's tunnels.
func (s *Server) Another(t testing.TB, c *cluster.Cluster) *Server {
	t.Helper()
	l := c.Listen(t)
	config := s.c
	config.Address = l.Addr().String()
	o, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	o.Ready(ctx)
	return o
}

// URL returns the URL of the server.
func (s *Server) URL() string { return "https://" + s.c.Address }

// PKI returns the server's CAs.
func (s *Server) PKI() *PKI { return s.pki }

// allowJoin creates a bootstrap token and the roles of k3s' users. k3s manifests/rolebindings.yaml; pkg/cli/token/token.go.
func allowJoin(ctx context.Context, client kubernetes.Interface) error {
	id, secret, _ := strings.Cut(bootstrapToken, ".")
	_, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
			"usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:k3s:default-node-token"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	roles := client.RbacV1()
	rule := func(group, verbs string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Verbs: strings.Fields(verbs), Resources: resources}
	}
	const controller = "system:k3s-controller"
	_, err = roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: controller},
		Rules: []rbacv1.PolicyRule{
			rule("", "get list watch", "nodes"), rule("", "patch", "nodes/status"), rule("", "list watch", "namespaces"),
			rule("", "list get watch", "endpoints", "pods"), rule("networking.k8s.io", "list watch", "networkpolicies"),
			rule("discovery.k8s.io", "list get watch", "endpointslices"),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for user, role := range map[string]string{controller: controller, "kube-apiserver": "system:kubelet-api-admin"} {
		_, err := roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "k3s-" + strings.ReplaceAll(role, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}
