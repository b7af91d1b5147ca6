package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
)

func (c *Cluster) makeClient() error {
	b, err := os.ReadFile(c.path("super-admin.conf"))
	if err != nil {
		return err
	}
	if c.conf, err = clientcmd.RESTConfigFromKubeConfig(b); err != nil {
		return err
	}
	c.conf.Dial = c.Dial
	c.conf.QPS, c.conf.Burst = 1000, 1000
	c.conf.ContentType = runtime.ContentTypeProtobuf
	c.admin, err = kubernetes.NewForConfig(c.conf)
	return err
}

// Admin returns a client with an administrator's credentials.
func (c *Cluster) Admin() kubernetes.Interface { return c.admin }

// Config returns a copy of the administrator's client configuration. A test may replace its
// credentials.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.conf) }

// Token returns a bootstrap token.
func (c *Cluster) Token() string { return c.token }

// Name returns the test's name as a valid name of an object.
func Name(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, strings.TrimPrefix(t.Name(), "Test"))
	return strings.Trim(name[:min(len(name), 50)], "-")
}

// Namespace creates a namespace for the test, and removes it when the test ends. The namespace's pods run only on the
// test's node.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	ctx, name := t.Context(), Name(t)
	own := map[string]string{"scheduler.alpha.kubernetes.io/node-selector": corev1.LabelHostname + "=" + name}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: own}}
	_, err := c.admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // the test has run before in this process
		c.Kubectl(t, "wait", "--for=delete", "namespace/"+name, "--timeout=90s")
		_, err = c.admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.removeNamespace(t, name) })
	c.AwaitAny(t, "serviceaccounts", name, "default", &corev1.ServiceAccount{}, "to be made", func(runtime.Object) bool { return true })
	c.AwaitAny(t, "configmaps", name, "kube-root-ca.crt", &corev1.ConfigMap{}, "to be made", func(runtime.Object) bool { return true })
	return name
}

// removeNamespace deletes a namespace and its pods. It does not wait until the pods have ended,
// because the pods' nodes are already off.
func (c *Cluster) removeNamespace(t testing.TB, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), machine.WaitTimeout)
	defer cancel()
	if err := c.admin.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	now := int64(0)
	err := c.admin.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
	}
}

// AwaitAny watches an object of the core group or of storage.k8s.io until ok returns true for the object. It returns the object. If the API
// server restarts, AwaitAny continues to watch. The caller passes an empty object of the same type.
func (c *Cluster) AwaitAny(t testing.TB, resource, namespace, name string, kind runtime.Object, what string,
	ok func(runtime.Object) bool) runtime.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout)
	defer cancel()
	var last runtime.Object
	client := c.admin.CoreV1().RESTClient()
	switch kind.(type) {
	case *storagev1.CSINode, *storagev1.VolumeAttachment:
		client = c.admin.StorageV1().RESTClient()
	}
	lw := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector("metadata.name", name))
	_, err := watchtools.UntilWithSync(ctx, lw, kind, nil, func(e watch.Event) (bool, error) {
		last = e.Object
		return e.Type != watch.Deleted && ok(e.Object), nil
	})
	if err != nil {
		t.Fatalf("waited in vain for %s %s/%s %s: %v\n%s", resource, namespace, name, what, err,
			c.Describe("-n", namespace, resource, name))
	}
	return last
}

// AwaitPod waits until ok returns true for a pod from the API server.
func (c *Cluster) AwaitPod(t testing.TB, namespace, name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return c.AwaitAny(t, "pods", namespace, name, &corev1.Pod{}, what,
		func(o runtime.Object) bool { return ok(o.(*corev1.Pod)) }).(*corev1.Pod)
}

// AwaitReady waits until the pods are ready, and returns them by name.
func (c *Cluster) AwaitReady(t testing.TB, namespace string, names ...string) map[string]*corev1.Pod {
	t.Helper()
	pods := map[string]*corev1.Pod{}
	for _, n := range names {
		pods[n] = c.AwaitPod(t, namespace, n, "to be ready", PodReady)
	}
	return pods
}

// AwaitNode waits until ok returns true for a Node.
func (c *Cluster) AwaitNode(t testing.TB, name, what string, ok func(*corev1.Node) bool) *corev1.Node {
	t.Helper()
	return c.AwaitAny(t, "nodes", "", name, &corev1.Node{}, what,
		func(o runtime.Object) bool { return ok(o.(*corev1.Node)) }).(*corev1.Node)
}

// AwaitGone waits until the API server has no pod with the given name and UID.
func (c *Cluster) AwaitGone(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout)
	defer cancel()
	lw := cache.NewListWatchFromClient(c.admin.CoreV1().RESTClient(), "pods", pod.Namespace,
		fields.OneTermEqualSelector("metadata.name", pod.Name))
	same := func(o any) bool { p, ok := o.(*corev1.Pod); return ok && p.UID == pod.UID }
	missing := func(s cache.Store) (bool, error) { return !slices.ContainsFunc(s.List(), same), nil }
	_, err := watchtools.UntilWithSync(ctx, lw, &corev1.Pod{}, missing, func(e watch.Event) (bool, error) {
		return (e.Type == watch.Deleted) == same(e.Object), nil
	})
	if err != nil {
		t.Fatalf("waited in vain for pod %s/%s (%s) to be gone: %v", pod.Namespace, pod.Name, pod.UID, err)
	}
}

// PodReady reports whether a pod's Ready condition is true.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// NodeReady reports whether a Node's Ready condition is true.
func NodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// ApproveServing waits for a node's request for a serving certificate and approves it. No
// controller approves such requests.
func (c *Cluster) ApproveServing(t testing.TB, node string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout)
	defer cancel()
	requests := c.admin.CertificatesV1().CertificateSigningRequests()
	lw := cache.NewListWatchFromClient(c.admin.CertificatesV1().RESTClient(), "certificatesigningrequests", "", fields.Everything())
	_, err := watchtools.UntilWithSync(ctx, lw, &certificates.CertificateSigningRequest{}, nil, func(e watch.Event) (bool, error) {
		r, ok := e.Object.(*certificates.CertificateSigningRequest)
		if !ok || e.Type == watch.Deleted || r.Spec.SignerName != certificates.KubeletServingSignerName ||
			r.Spec.Username != "system:node:"+node || len(r.Status.Conditions) > 0 {
			return false, nil
		}
		r = r.DeepCopy()
		r.Status.Conditions = []certificates.CertificateSigningRequestCondition{{
			Type: certificates.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "the test asked for it",
		}}
		_, err := requests.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
		return err == nil, err
	})
	if err != nil {
		t.Fatalf("approve the serving certificate of %s: %v", node, err)
	}
}

// BootstrapKubeconfig returns the kubeconfig with which a new node requests its credentials. The argument is the address of the API server
// or of a proxy.
func (c *Cluster) BootstrapKubeconfig(server string) string {
	return c.kubeconfig(server, "token: "+c.token)
}

// NodeKubeconfig returns the kubeconfig that an administrator writes for a node whose credentials have become invalid.
// It contains the present CA and a client certificate from Certificate.
func (c *Cluster) NodeKubeconfig(certificate string) string {
	pair := base64.StdEncoding.EncodeToString([]byte(certificate))
	return c.kubeconfig(gateway+":6443", fmt.Sprintf("client-certificate-data: %[1]s, client-key-data: %[1]s", pair))
}

// Authority returns the certificate of the cluster's CA in PEM.
func (c *Cluster) Authority() string { return string(c.conf.CAData) }

func (c *Cluster) kubeconfig(server, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: c
  cluster:
    server: https://%s
    certificate-authority-data: %s
users:
- name: u
  user: {%s}
contexts:
- name: c
  context: {cluster: c, user: u}
current-context: c
`, server, base64.StdEncoding.EncodeToString(c.conf.CAData), user)
}
