package k3s

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node is a machine on which islet joins a k3s cluster.
type node struct {
	*machine.Machine
	*cluster.Link
	t    *testing.T
	c    *cluster.Cluster
	dir  string        // of the configuration, the state, the token and the password
	subs *atomic.Int64 // the number of subtests so far
}

func newNode(t *testing.T, c *cluster.Cluster) *node {
	t.Helper()
	m, l := c.Machine(t)
	n := &node{Machine: m, Link: l, t: t, c: c, dir: m.Disk, subs: new(atomic.Int64)}
	m.Write("kubelet.yaml", m.Kubelet(machine.Roomy))
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n", m.Disk))
	m.Boot()
	return n
}

// join runs islet join and returns its output and exit code. The directory has the files of the token and the password.
func (n *node) join(url, token string, more ...string) (string, int) {
	n.t.Helper()
	if err := os.WriteFile(n.dir+"/token", []byte(token+"\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return n.Try(append([]string{"join", "--k3s", url, "--token-file", n.dir + "/token", "--node-ip", n.Addr, "--state-dir", n.dir + "/state",
		"--config-dir", n.dir, "--password-file", n.dir + "/password"}, more...)...)
}

// start joins, starts the agent and waits until the Node is ready and the server has its tunnel.
func (n *node) start(s *Server, token string) {
	n.t.Helper()
	if out, code := n.join(s.URL(), token); code != 0 {
		n.t.Fatalf("islet join: %d\n%s", code, out)
	}
	n.StartAgent()
	n.c.AwaitNode(n.t, n.Name, "to be ready", cluster.NodeReady)
	n.Await("the tunnel", func() bool { return s.Connected(n.Name) })
}

// TestIslet checks that a node with islet joins a k3s cluster, and that kubectl logs and exec reach its pods through its tunnel: also after
// the tunnel was cut, and after the machine has booted without the token and at first without the server. The Node is that of a former
// agent of k3s. The labels and the annotations of this agent must be removed.
func TestIslet(t *testing.T) {
	t.Parallel()
	c, s := Start(t)
	n := newNode(t, c)
	c.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q, "labels": {%q: "true", "k3s.io/internal-ip": "192.0.2.99"}, "annotations": {
"k3s.io/internal-ip": "192.0.2.99", "k3s.io/hostname": %[1]q}}}`, n.Name, egressLabel))
	n.start(s, s.NodeToken())
	c.AwaitNode(t, n.Name, "to have nothing of the former agent", func(node *corev1.Node) bool {
		_, egress := node.Labels[egressLabel]
		_, address := node.Annotations["k3s.io/internal-ip"]
		_, label := node.Labels["k3s.io/internal-ip"]
		_, name := node.Annotations["k3s.io/hostname"]
		return !egress && !address && !label && !name
	})
	ns := c.Namespace(t)
	c.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": %q}, "spec": {
"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "args": ["count",
"100ms"]}]}}`, ns, machine.Image))
	c.AwaitReady(t, ns, "p")
	hasLogs := func() bool {
		out, err := c.TryKubectl("", "-n", ns, "logs", "p", "--request-timeout=10s")
		return err == nil && strings.HasPrefix(out, "0\n")
	}
	if conn, err := c.Dial(t.Context(), "tcp", n.Addr+":10250"); err == nil {
		conn.Close()
		t.Error("the control plane's host reaches the kubelet without the tunnel, so the test proves nothing")
	}
	if out, err := c.TryKubectl("", "-n", ns, "logs", "p"); err != nil || !strings.HasPrefix(out, "0\n") {
		t.Errorf("kubectl logs: %v\n%s", err, out)
	}
	env := c.Kubectl(t, "-n", ns, "exec", "p", "--", "/podtool", "env")
	if !strings.Contains(env, "HOSTNAME=p\n") {
		t.Errorf("kubectl exec has written %q", env)
	}
	n.streams(ns, s)
	n.Await("the password's Secret to belong to the Node", func() bool { return ownsPassword(t, c, n.Name) })

	s.DropTunnels(n.Name)
	n.Await("the logs after a cut of the tunnel", hasLogs)
	n.Cut(t)
	n.PowerOff()
	n.Remove("token")
	n.Boot()
	n.StartAgent()
	n.WaitReady("p") // without the server
	n.Restore(t)
	n.Await("the logs after a boot", hasLogs) // the server notices only now that the old tunnel is gone
}

// streams checks that large streams are complete in both directions, also if the client reads late.
//
// The server of remotedialer (0.6.1, back_pressure.go) has a fault: once it holds 2 MiB for a late reader, it sends nothing to the node any
// more on this connection. HTTP/2 then stalls, for k3s' own agents too: kubectl logs ends after 45 seconds, with a part of the lines.
// HTTP/1.1 does not stall. So the streams have less than 2 MiB while the kubelet offers HTTP/2 through the tunnel.
func (n *node) streams(ns string, s *Server) {
	n.t.Helper()
	lines := 60_000
	if n.protocol(s) == "h2" {
		lines = 15_000
	}
	n.c.Apply(n.t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "many", "namespace": %q}, "spec": {"restartPolicy":
"Never", "containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "args": ["lines", "%d", "0", "leave"]}]}}`,
		ns, machine.Image, lines))
	var whole string
	n.Await("all lines of the pod", func() bool { // a part of them may be written after the pod has ended
		out, err := n.c.TryKubectl("", "-n", ns, "logs", "many")
		whole = out
		return err == nil && strings.Count(whole, "\n") == lines
	})
	late, write := io.Pipe()
	cmd := n.c.KubectlCommand("-n", ns, "logs", "many")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = write, &said
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func() { write.CloseWithError(cmd.Wait()) }() // no error is the end of the output
	first := make([]byte, 1)
	if _, err := io.ReadFull(late, first); err != nil {
		n.t.Fatalf("%v: %s", err, said.String())
	}
	cluster.Pass(2 * time.Second) // all buffers on the way become full
	rest, err := io.ReadAll(late)
	if err != nil || string(first)+string(rest) != whole {
		n.t.Errorf("kubectl logs with a late reader has written %d bytes of %d, %v", 1+len(rest), len(whole), err)
	}
	text := strings.Repeat("0123456789abcdef", 64<<10)
	out, err := n.c.TryKubectl(text, "-n", ns, "exec", "-i", "p", "--", "/podtool", "cat", "/dev/stdin")
	n.c.Kubectl(n.t, "-n", ns, "delete", "pod", "many")
	if err != nil || out != text {
		n.t.Errorf("kubectl exec has returned %d bytes of %d, %v", len(out), len(text), err)
	}
}

// protocol returns the protocol that the kubelet chooses for the API server, through the tunnel.
func (n *node) protocol(s *Server) string {
	n.t.Helper()
	conn, err := s.DialThrough(n.t.Context(), n.Name, "tcp", "127.0.0.1:10250")
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	secure := tls.Client(conn, &tls.Config{RootCAs: s.pki.server.pool(), ServerName: n.Name, NextProtos: []string{"h2", "http/1.1"}})
	if err := secure.HandshakeContext(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	return secure.ConnectionState().NegotiatedProtocol
}

// TestIsletTokens checks the other tokens of k3s: that of the server and a bootstrap token. A token of another cluster is refused, and so
// is a name with another password.
func TestIsletTokens(t *testing.T) {
	t.Parallel()
	c, s := Start(t)
	n := newNode(t, c)
	other := "K10" + strings.Repeat("0", 64) + "::node:" + s.c.Passwords.Agent
	wrong := strings.TrimSuffix(s.NodeToken(), s.c.Passwords.Agent) + "wrong"
	short := s.c.Passwords.Agent
	for name, token := range map[string]string{"another CA": other, "a wrong password": wrong, "without a hash": short, "empty": ""} {
		n.refused(s, name, token)
	}
	for _, token := range []string{s.ServerToken(), s.BootstrapToken(bootstrapToken)} {
		if out, code := n.join(s.URL(), token); code != 0 {
			t.Errorf("join: %d\n%s", code, out)
		}
	}
	n.Write("password", "ffffffffffffffffffffffffffffffff\n")
	n.refused(s, "another node's name", s.NodeToken())
}

// refused checks that islet join fails, says something, and leaves the machine's configuration as it was.
func (n *node) refused(s *Server, what, token string) {
	n.t.Helper()
	before := n.files()
	out, code := n.join(s.URL(), token)
	if code == 0 || strings.TrimSpace(out) == "" {
		n.t.Errorf("%s: join: %d\n%s", what, code, out)
	}
	if now := n.files(); now != before {
		n.t.Errorf("%s: a refused join has changed the files from\n%sto\n%s", what, before, now)
	}
}

// files returns the files that a join may write, except the token and the password, with their times.
func (n *node) files() string {
	n.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(n.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, n.dir+"/state/images/") || d.Name() == "token" || d.Name() == "password" {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return b.String()
}

// in returns the node for a subtest with a configuration of its own, which no agent uses.
func (n *node) in(t *testing.T) *node {
	t.Helper()
	sub := fmt.Sprint("sub", n.subs.Add(1))
	o := &node{Machine: n.In(t), Link: n.Link, t: t, c: n.c, dir: filepath.Join(n.Disk, sub), subs: n.subs}
	o.Write(sub+"/password", strings.Repeat("5", 32)+"\n") // all subtests are the same node
	o.Write(sub+"/kubelet.yaml", o.Kubelet(machine.Roomy))
	o.Write(sub+"/edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n")
	return o
}

// TestIsletRenews checks that a node renews its certificates before they end, while the agent runs. An invalid certificate and errors of
// the server do not stop it.
func TestIsletRenews(t *testing.T) {
	long(t)
	t.Parallel()
	c, first := Start(t)
	s := first.Another(t, c)
	s.SetValidity(2 * time.Minute)
	n := newNode(t, c)
	n.start(s, s.NodeToken())
	end := time.Now().Add(2 * time.Minute)
	const client = "/v1-k3s/client-kubelet.crt"
	foreign, err := NewAuthority("k3s-client")
	if err != nil {
		t.Fatal(err)
	}
	s.Misissue(func(i *Issue) { i.Authority = foreign })
	n.Await("a renewal with a certificate of another CA", func() bool { return s.Lies() > 0 })
	s.Heal()
	lies := s.Lies()
	s.Instead(client, Status(http.StatusServiceUnavailable, 0))
	n.Await("a renewal that fails", func() bool { return s.Lies() > lies })
	s.Heal()
	s.SetValidity(0)
	before := s.Requests()["POST "+client]
	n.Await("a renewal", func() bool { return s.Requests()["POST "+client] > before })
	cluster.Pass(time.Until(end)) // the first certificates are invalid then
	tunnels := s.Requests()["GET /v1-k3s/connect"]
	s.DropTunnels(n.Name)
	n.Await("another tunnel", func() bool { return s.Requests()["GET /v1-k3s/connect"] > tunnels && s.Connected(n.Name) })
	began := time.Now()
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
	n.Await("the Lease to be renewed", func() bool {
		l, err := c.Admin().CoordinationV1().Leases("kube-node-lease").Get(t.Context(), n.Name, metav1.GetOptions{})
		return err == nil && l.Spec.RenewTime.After(began)
	})
}

// TestIsletServers checks that a node has a tunnel to each server of the cluster, and that a list with other addresses does no harm.
func TestIsletServers(t *testing.T) {
	t.Parallel()
	c, first := Start(t)
	a, b := first.Another(t, c), first.Another(t, c)
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf("192.0.2.1:%d", 1+i))
	}
	a.SetServers(append([]string{a.c.Address, b.c.Address, "", "here", "[::1", "127.0.0.1:10250", strings.Repeat("a", 1000)}, many...)...)
	n := newNode(t, c)
	n.start(a, a.NodeToken())
	before := n.descriptors()
	n.Await("the tunnel to the other server", func() bool { return b.Connected(n.Name) })
	if now := n.descriptors(); now > before+100 {
		t.Errorf("a list of %d servers: from %d to %d open files", len(many), before, now)
	}
}

// TestIsletDistrusts checks that islet join refuses a server that lies, in a bounded time, and that it changes nothing then.
func TestIsletDistrusts(t *testing.T) {
	t.Parallel()
	c, first := Start(t)
	n := newNode(t, c)
	foreign, err := NewAuthority("k3s-server")
	if err != nil {
		t.Fatal(err)
	}
	ca := first.PKI().ServerCA()
	const serving, client = "/v1-k3s/serving-kubelet.crt", "/v1-k3s/client-kubelet.crt"
	lies := map[string]func(*Server){
		"another CA":                      func(s *Server) { s.Instead("/cacerts", Text(foreign.PEM())) },
		"two CAs":                         func(s *Server) { s.Instead("/cacerts", Text(append(foreign.PEM(), ca...))) },
		"no CA":                           func(s *Server) { s.Instead("/cacerts", Text(nil)) },
		"a truncated CA":                  func(s *Server) { s.Instead("/cacerts", Truncated(ca, 100)) },
		"an endless CA":                   func(s *Server) { s.Instead("/cacerts", Endless(ca)) },
		"a CA that does not end":          func(s *Server) { s.Instead("/cacerts", HangAfter(ca)) },
		"no answer":                       func(s *Server) { s.Instead("/cacerts", Hang()) },
		"another server's certificate":    func(s *Server) { _ = s.ServeCertificateOf(foreign) },
		"an error":                        func(s *Server) { s.Instead("/v1-k3s/config", Status(http.StatusServiceUnavailable, time.Hour)) },
		"a redirection":                   func(s *Server) { s.Instead(client, Redirect("https://"+Address+client)) },
		"an endless configuration":        func(s *Server) { s.Instead("/v1-k3s/config", Endless([]byte(`[[[[[[[[`))) },
		"an endless certificate":          func(s *Server) { s.Instead(serving, Endless(ca)) },
		"a certificate that does not end": func(s *Server) { s.Instead(client, HangAfter(ca)) },
		"an empty certificate":            func(s *Server) { s.Instead(client, Text(nil)) },
		"a refused password":              func(s *Server) { s.Instead(client, Status(http.StatusForbidden, 0)) },
		"an endless client CA":            func(s *Server) { s.Instead("/v1-k3s/client-ca.crt", Endless(ca)) },
		"a certificate of another key":    func(s *Server) { s.Misissue(func(i *Issue) { i.Key = foreign.Key.Public() }) },
		"a certificate of another CA":     func(s *Server) { s.Misissue(func(i *Issue) { i.Authority = foreign }) },
		"a certificate of another node": func(s *Server) {
			s.Misissue(func(i *Issue) { i.Subject.Name = strings.Replace(i.Subject.Name, n.Name, "another", 1) })
		},
		"a master's certificate": func(s *Server) { s.Misissue(func(i *Issue) { i.Subject.Groups = []string{"system:masters"} }) },
		"an expired certificate": func(s *Server) { s.Misissue(func(i *Issue) { i.Subject.Validity = -time.Second }) },
	}
	for what, lie := range lies {
		slow := strings.Contains(what, "does not end") || strings.Contains(what, "no answer")
		t.Run(what, func(t *testing.T) {
			if slow {
				long(t)
			}
			t.Parallel()
			s := first.Another(t, c)
			lie(s)
			n := n.in(t)
			n.refused(s, what, s.NodeToken())
			if s.Lies() == 0 {
				t.Error("islet join has not seen the lie")
			}
			s.Heal()
			if out, code := n.join(first.URL(), first.NodeToken()); code != 0 {
				t.Errorf("join after the lie: %d\n%s", code, out)
			}
		})
	}
}

// long skips a test of a minute or more.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("takes long: ISLET_TEST_LONG=1")
	}
}
