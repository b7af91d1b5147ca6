package k3s

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// A board is a machine with islet that joins by islet join.
type board struct {
	*machine.Machine
	*cluster.Link
	t *testing.T
	c *cluster.Cluster
	s *Server
}

func newBoard(t *testing.T, c *cluster.Cluster, s *Server) *board {
	t.Helper()
	t.Cleanup(func() { c.Kubectl(t, "delete", "node", cluster.Name(t), "--ignore-not-found") }) // after the machine is off
	m := machine.New(t, cluster.Name(t))
	b := &board{m, c.Plug(m), t, c, s}
	m.InstallImage()
	m.Write("kubelet.yaml", m.Kubelet(machine.Roomy))
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n", m.Disk))
	m.Boot()
	return b
}

// join runs islet join with a token, and returns its output and its exit code.
func (b *board) join(token string, args ...string) (string, int) {
	b.t.Helper()
	b.Write("token", token+"\n")
	return b.Try(append([]string{"join", "--k3s", b.s.URL(), "--token-file", b.Disk + "/token", "--state-dir", b.Disk + "/state",
		"--config-dir", b.Disk, "--password-file", b.Disk + "/rancher/password"}, args...)...)
}

// mustJoin joins, and starts islet.
func (b *board) mustJoin(token string, args ...string) {
	b.t.Helper()
	if out, code := b.join(token, args...); code != 0 {
		b.t.Fatalf("islet join: %d\n%s", code, out)
	}
	b.StartAgent("--node-ip=" + b.Addr)
	b.c.AwaitNode(b.t, b.Name, "to be ready", cluster.NodeReady)
}

// file returns the content of a file of the cluster's directory.
func (b *board) file(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Disk, "state/k3s/current", name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// runPod runs a pod that writes a line, and returns its namespace.
func (b *board) runPod() string {
	b.t.Helper()
	ns := b.c.Namespace(b.t)
	b.c.Apply(b.t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": %q}, "spec": {"nodeName": %q,
"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": %q, "args": ["count"]}]}}`, ns, b.Name, machine.Image))
	b.c.AwaitReady(b.t, ns, "p")
	return ns
}

// awaitTunnel waits until logs and a command of the pod come through the tunnel.
func (b *board) awaitTunnel(ns string) {
	b.t.Helper()
	b.Await("kubectl exec", func() bool {
		out, err := b.c.TryKubectl("", "-n", ns, "exec", "p", "--", "/podtool", "cat", "/etc/hostname")
		return err == nil && out == "p\n"
	})
	if out := b.c.Kubectl(b.t, "-n", ns, "logs", "p", "--limit-bytes=2"); out != "0\n" {
		b.t.Errorf("kubectl logs has written %q", out)
	}
}

// TestIslet joins a node of islet with each kind of token. The control plane cannot reach its port 10250, so logs and exec use the tunnel.
// They work again after an outage of the link and after a restart of the agent.
func TestIslet(t *testing.T) {
	c, s := Start(t)
	c.Block(t, "10250")
	b := newBoard(t, c, s)
	if out, code := b.join(s.BootstrapToken(bootstrapToken), "--node-ip", b.Addr); code != 0 {
		t.Fatalf("islet join: %d\n%s", code, out)
	}
	b.mustJoin(s.NodeToken(), "--node-ip", b.Addr)
	ns := b.runPod()
	b.awaitTunnel(ns)
	in := strings.Repeat("0123456789abcdef", 256<<10) // 4 MiB in both directions
	out, err := c.TryKubectl(in, "-n", ns, "exec", "-i", "p", "--", "/podtool", "cat")
	if err != nil || out != in {
		t.Errorf("kubectl exec -i has returned %d of %d bytes, %v", len(out), len(in), err)
	}
	b.Silence(t)
	cluster.Pass(5 * time.Second)
	b.Restore(t)
	b.awaitTunnel(ns)
	b.Cut(t)
	b.Await("the end of the tunnel", func() bool { return !s.Connected(b.Name) })
	b.Restore(t)
	b.awaitTunnel(ns)
	b.Kill()
	b.StartAgent("--node-ip=" + b.Addr)
	b.awaitTunnel(ns)
}

// TestIsletRenews checks that a node outlives its certificates, with a pod that does not restart.
func TestIsletRenews(t *testing.T) {
	c, s := Start(t)
	o := s.Another(t, c)
	const life = 60 * time.Second
	o.SetValidity(life)
	b := newBoard(t, c, o)
	b.mustJoin(o.NodeToken(), "--node-ip", b.Addr)
	began, first, serving := time.Now(), b.file("client-kubelet.pem"), b.file("serving-kubelet.pem")
	ns := b.runPod()
	uid := b.Pods()["p"].Metadata.UID
	b.Await("both certificates to be renewed", func() bool {
		return b.file("client-kubelet.pem") != first && b.file("serving-kubelet.pem") != serving
	})
	if took := time.Since(began); took > life {
		t.Logf("the certificates were renewed after %v", took)
	}
	cluster.Pass(time.Until(began.Add(life + 5*time.Second)))
	c.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q", "namespace": %q}, "spec": {"nodeName": %q,
"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": %q, "args": ["count"]}]}}`, ns, b.Name, machine.Image))
	c.AwaitReady(t, ns, "p", "q")
	if now := b.Pods()["p"].Metadata.UID; now != uid {
		t.Errorf("the pod has the UID %s instead of %s", now, uid)
	}
}

// TestIsletRefuses checks that a node does not join with a wrong hash, a wrong token or another node's password, and not a server that
// lies. Each time nothing is written but the password.
func TestIsletRefuses(t *testing.T) {
	c, s := Start(t)
	o := s.Another(t, c)
	b := newBoard(t, c, o)
	foreign, err := NewAuthority("k3s-server")
	if err != nil {
		t.Fatal(err)
	}
	_, credentials, _ := strings.Cut(o.NodeToken(), "::")
	refused := func(what, token string, args ...string) {
		t.Helper()
		if out, code := b.join(token, args...); code == 0 {
			t.Errorf("%s: islet has joined\n%s", what, out)
		} else {
			t.Logf("%s: %s", what, out)
		}
		if _, err := os.Lstat(filepath.Join(b.Disk, "state/k3s")); !os.IsNotExist(err) {
			t.Errorf("%s: islet has written its directory, %v", what, err)
		}
	}
	refused("a wrong hash", "K10"+strings.Repeat("ab", 32)+"::"+credentials)
	refused("a wrong password", o.hash()+"node:wrong")
	refused("the token of servers, where agents have another one", o.ServerToken())
	refused("no hash", "wrong")
	for _, path := range []string{"/cacerts", "/v1-k3s/config", "/v1-k3s/client-ca.crt", "/v1-k3s/client-kubelet.crt", "/v1-k3s/serving-kubelet.crt"} {
		o.Instead(path, Text([]byte("a lie")))
		refused("a text for "+path, o.NodeToken())
		o.Instead(path, Endless([]byte("-----BEGIN CERTIFICATE-----\n")))
		refused("an endless answer for "+path, o.NodeToken())
		o.Instead(path, Redirect("https://192.0.2.1/"))
		refused("a redirect of "+path, o.NodeToken())
		o.Instead(path, nil)
	}
	for what, change := range map[string]func(*Issue){
		"the certificate of another CA":   func(i *Issue) { i.Authority = foreign },
		"the certificate of another node": func(i *Issue) { i.Subject.Name = "system:node:another" },
		"an expired certificate":          func(i *Issue) { i.Subject.Validity = -time.Hour },
	} {
		o.Misissue(change)
		refused(what, o.NodeToken())
	}
	o.Misissue(nil)
	if out, code := b.join(o.NodeToken()); code != 0 {
		t.Fatalf("islet join: %d\n%s", code, out)
	}
	if err := os.RemoveAll(filepath.Join(b.Disk, "state/k3s")); err != nil {
		t.Fatal(err)
	}
	refused("another password of the node", o.NodeToken(), "--password-file", b.Disk+"/another")
	if err := o.ServeCertificateOf(foreign); err != nil {
		t.Fatal(err)
	}
	refused("another CA behind the hash", o.NodeToken())
}
