package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	corev1 "k8s.io/api/core/v1"
)

// present replaces the client certificate of a stopped agent.
func present(t *testing.T, n *cluster.Node, pem string) {
	t.Helper()
	n.Write("pki/kubelet-client-given.pem", pem)
	current := filepath.Join(n.Disk, "pki/kubelet-client-current.pem")
	if err := os.Chmod(filepath.Join(n.Disk, "pki/kubelet-client-given.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(current); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kubelet-client-given.pem", current); err != nil {
		t.Fatal(err)
	}
}

// TestCredentialsExpired checks that pods run on a node with an expired client certificate. With a bootstrap token the node must request a
// new certificate.
func TestCredentialsExpired(t *testing.T) {
	c, n, ns := join(t)
	before := pods(t, c, ns, 2)
	n.Stop()
	token, err := os.ReadFile(filepath.Join(n.Disk, "bootstrap.conf"))
	if err != nil {
		t.Fatal(err)
	}
	n.Remove("bootstrap.conf")
	present(t, n, c.Certificate(t, n.Name, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)))
	n.Reboot()
	n.Start()
	n.WaitReady("p0", "p1")
	n.Await("the node to report the problem", func() bool {
		out, _ := n.Try("status")
		return strings.Contains(out, "the client certificate expired at") && strings.Contains(out, "bootstrap.conf: no such file")
	})
	n.Write("bootstrap.conf", string(token))
	soon(t, c, ns, "after", 30*time.Second)
	for name, old := range before {
		c.AwaitPod(t, ns, name, "to show that it ran on", func(p *corev1.Pod) bool {
			return p.UID == old.UID && container(p) != container(old) && cluster.PodReady(p)
		})
	}
}

// TestRotation checks that a client certificate is renewed before it expires.
func TestRotation(t *testing.T) {
	c, n, ns := join(t)
	n.Stop()
	given := c.Certificate(t, n.Name, time.Now().Add(-20*time.Hour), time.Now().Add(time.Hour))
	present(t, n, given)
	n.Remove("bootstrap.conf")
	n.Start()
	n.Await("another certificate", func() bool {
		b, err := os.ReadFile(filepath.Join(n.Disk, "pki/kubelet-client-current.pem"))
		return err == nil && string(b) != given
	})
	soon(t, c, ns, "after", 10*time.Second)
}

// TestOtherPair checks that a node whose newest client certificate is rejected by a real API server uses the previous one.
func TestOtherPair(t *testing.T) {
	c, n, ns := join(t)
	n.Stop()
	n.Remove("bootstrap.conf")
	pairs, err := filepath.Glob(filepath.Join(n.Disk, "pki/kubelet-client-2*.pem"))
	if err != nil || len(pairs) != 1 {
		t.Fatal(pairs, err)
	}
	const rejected = "pki/kubelet-client-2001-01-01-00-00-00.pem"
	n.Write(rejected, cluster.RejectedCertificate(t, n.Name, time.Now().Add(-time.Hour), time.Now().Add(20*time.Hour)))
	current := filepath.Join(n.Disk, "pki/kubelet-client-current.pem")
	if err := os.Remove(current); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(rejected), current); err != nil {
		t.Fatal(err)
	}
	n.Start()
	soon(t, c, ns, "after", 30*time.Second)
	if target, err := os.Readlink(current); err != nil || filepath.Base(target) != filepath.Base(pairs[0]) {
		t.Errorf("%s is in use: %v", target, err)
	}
}

// TestSlowClock checks that a node with a slow clock derives a lower bound of the time from the API server, also after a restart without
// the API server. It must serve expired tokens, and refresh them first when the link is restored.
func TestSlowClock(t *testing.T) {
	c, proxy, n, ns := joinProxy(t)
	c.Apply(t, objects(ns)+dressed(ns, "a")+dressed(ns, "b"))
	c.AwaitReady(t, ns, "a", "b")
	own, shop := seen(t, c, n, ns, "a")
	proxy.SetAhead(2 * time.Hour)
	proxy.Requests()
	n.Flap(t, 1, time.Second, 0)
	n.Await("the node to look whether the server is there", func() bool {
		by, _ := proxy.Requests()
		return by["GET /readyz"] > 0
	})
	soon(t, c, ns, "ahead", 10*time.Second)
	n.Await("several answers to have proven the server's time", func() bool {
		out, _ := n.Try("clock")
		return strings.Contains(out, "The machine's clock is behind by")
	})
	n.Cut(t)
	n.Stop()
	n.Reboot()
	n.Start()
	n.WaitReady("a", "b", "ahead")
	if o, s := seen(t, c, n, ns, "a"); o != own || s != shop {
		t.Error("the tokens have changed")
	}
	if out, _ := n.Try("status"); !strings.Contains(out, "token of pod "+ns+"/a") || !strings.Contains(out, "expired at") {
		t.Errorf("status does not show the expired tokens:\n%s", out)
	}
	proxy.Heal()
	n.Restore(t)
	began := time.Now()
	for _, name := range []string{"a", "b"} {
		n.Await("other tokens", func() bool {
			o, s := seen(t, c, n, ns, name)
			return o != own && s != shop
		})
	}
	within(t, "stale tokens are refreshed", began, 10*time.Second)
	own, shop = seen(t, c, n, ns, "a")
	valid(t, c, own, ns, "a")
	valid(t, c, shop, ns, "a", "shop")
}
