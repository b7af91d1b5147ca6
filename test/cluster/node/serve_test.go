package node

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// peer returns the certificate chain of the node's kubelet API.
func peer(t *testing.T, c *cluster.Cluster, n *cluster.Node) ([]*x509.Certificate, error) {
	raw, err := c.Dial(t.Context(), "tcp", n.Addr+":10250")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		return nil, err
	}
	return conn.ConnectionState().PeerCertificates, nil
}

// TestKubectl checks kubectl commands on pods through the API server.
func TestKubectl(t *testing.T) {
	c, n, ns := join(t)
	kubectl{c, ns, 18080}.all(t, n)
}

// all creates pods and runs kubectl commands on them.
func (k kubectl) all(t *testing.T, n *cluster.Node) {
	init := fmt.Sprintf("initContainers:\n- {name: first, image: %q, imagePullPolicy: Never, args: [cat, /etc/hostname]}", machine.Image)
	k.Apply(t, pod(k.ns, "web", "", "", "serve", ":8080")+pod(k.ns, "count", init, "", "count", "50ms")+
		pod(k.ns, "cat", "", "stdin: true\nstdinOnce: false", "cat")+pod(k.ns, "again", "", "", "cat", "/etc/hostname")+
		strings.Replace(pod(k.ns, "lost", "", "", "sleep"), machine.Image, "localhost/none:none", 1))
	n.Write("manifests/static.yaml", pod("default", "static", "", "", "count", "50ms"))
	web := k.AwaitReady(t, k.ns, "web", "count", "cat")["web"]
	t.Run("shows", func(t *testing.T) {
		k.want(t, n.Name, "get", "pods", "-o", "wide")
		k.want(t, web.Status.PodIP, "get", "pods", "-o", "wide")
		k.want(t, web.Status.ContainerStatuses[0].ContainerID, "describe", "pod", "web")
	})
	t.Run("logs", k.logs)
	t.Run("exec", k.exec)
	t.Run("websockets", func(t *testing.T) { k.webSockets(t, n) })
	t.Run("static", func(t *testing.T) {
		static, name := kubectl{Cluster: k.Cluster, ns: "default"}, "static-"+n.Name
		k.AwaitReady(t, static.ns, name)
		static.start(t, nil, "logs", "-f", name).await(t, "3\n")
		static.want(t, name+"\n", "exec", name, "--", "/podtool", "cat", "/etc/hostname")
	})
	t.Run("terminal", k.terminal)
	t.Run("attach", k.attach)
	t.Run("run", k.run)
	t.Run("cp", k.cp)
	t.Run("port-forward", k.portForward)
	t.Run("proxy", func(t *testing.T) { k.proxy(t, n) })
	t.Run("figures", func(t *testing.T) { k.figures(t, n) })
	t.Run("delete", func(t *testing.T) {
		k.want(t, `pod "web" force deleted`, "delete", "pod", "web", "--force", "--grace-period=0")
		k.AwaitGone(t, web)
	})
}

// TestDoors checks that the kubelet API rejects requests without permission, with the status codes and messages of a kubelet.
func TestDoors(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nstatusPagePort: 10247\n",
		n.Disk))
	n.Join()
	ns := c.Namespace(t)
	c.Apply(t, pod(ns, "web", "", "", "sleep"))
	// There is one service account for each subresource. The account "proxy" belongs to an administrator.
	place := strings.NewReplacer("NS", ns)
	subresources := []string{"pods", "healthz", "configz", "stats", "metrics", "log", "proxy", "checkpoint"}
	token := map[string]string{"nonsense": "nonsense", "default": tokenOf(t, c, ns, "default")}
	for _, sub := range subresources {
		token[sub] = mayOne(t, c, n, ns, sub)
	}
	token["watcher"] = may(t, c, n, ns, "watcher", "get", "proxy")
	c.AwaitReady(t, ns, "web")
	forbidden := func(who, subresources string) string {
		return fmt.Sprintf("Forbidden (user=system:serviceaccount:%s:%s, verb=get, resource=nodes, subresource(s)=[%s])", ns, who, subresources)
	}
	for _, x := range []struct {
		who, method, path string
		code              int
		want              string
	}{
		{"", "GET", "/pods", 401, "Unauthorized"},
		{"", "GET", "/healthz", 401, "Unauthorized"},
		{"nonsense", "GET", "/pods", 401, "Unauthorized"},
		{"default", "GET", "/pods", 403, forbidden("default", "pods proxy")},
		{"default", "GET", "/metrics", 403, forbidden("default", "metrics")},
		{"default", "GET", "/logs/", 403, forbidden("default", "log")},
		{"pods", "GET", "/pods", 200, `"PodList"`},
		{"pods", "GET", "/runningpods/", 200, `"PodList"`},
		{"pods", "GET", "/containerLogs/NS/web/c", 403, forbidden("pods", "proxy")},
		{"healthz", "GET", "/healthz/syncloop", 200, "ok"},
		{"healthz", "GET", "/configz", 403, forbidden("healthz", "configz proxy")},
		{"configz", "GET", "/configz", 200, "kubeletconfig"},
		{"stats", "GET", "/stats/summary", 200, "nodeName"},
		{"stats", "GET", "/metrics", 403, forbidden("stats", "metrics")},
		{"metrics", "GET", "/metrics/cadvisor", 200, "# TYPE"},
		{"log", "GET", "/logs/", 200, "<a href="},
		{"proxy", "GET", "/pods", 200, `"PodList"`},
		{"proxy", "GET", "/metrics", 403, forbidden("proxy", "metrics")},
		{"proxy", "GET", "/containerLogs/NS/none/c", 404, `pod "none" does not exist`},
		{"proxy", "GET", "/containerLogs/NS/web/none", 404, `container "none" not found in pod "web"`},
		{"proxy", "POST", "/exec/NS/none/c?command=x&output=1", 404, `pod "none" does not exist`},
		{"proxy", "POST", "/exec/NS/web/none?command=x&output=1", 404, `container not found ("none")`},
		{"proxy", "POST", "/exec/NS/web/c?command=x&output=1", 400, "Upgrade request required"},
		{"proxy", "POST", "/portForward/NS/none", 404, `pod "none" does not exist`},
		{"proxy", "GET", "/nothing", 404, ""},
		{"", "GET", "/page/", 401, "Unauthorized"},
		{"default", "GET", "/page/", 403, forbidden("default", "proxy")},
		{"pods", "GET", "/page/data", 403, forbidden("pods", "proxy")},
		{"proxy", "GET", "/page/", 200, `<script src="page.js"`},
		{"proxy", "GET", "/page/page.js", 200, "fetch("},
		{"proxy", "GET", "/page/data", 200, `"name":"web"`},
		{"proxy", "GET", "/page/log?namespace=NS&pod=web&container=c", 200, ""},
		{"proxy", "POST", "/page/data", 405, ""},
		// A WebSocket request uses GET, but opening a session needs the verb create.
		{"watcher", "GET", "/nothing", 404, ""},
		{"watcher", "GET", "/exec/NS/web/c?command=x&output=1", 403, "verb=create, resource=nodes, subresource(s)=[proxy]"},
		{"watcher", "GET", "/portForward/NS/web?port=80", 403, "verb=create, resource=nodes, subresource(s)=[proxy]"},
		{"checkpoint", "POST", "/checkpoint/NS/web/c", 500, "checkpointing of NS/web/c failed"},
	} {
		code, text := ask(t, c, x.method, "https://"+n.Addr+":10250"+place.Replace(x.path), token[x.who])
		if code != x.code || !strings.Contains(text, place.Replace(x.want)) {
			t.Errorf("account %q, path %s: %d %.300q, want %d %q", x.who, x.path, code, text, x.code, x.want)
		}
	}
}

// mayOne creates a service account that may get and create one subresource of nodes. The account has the name of the subresource. mayOne
// returns the token of the account.
func mayOne(t *testing.T, c *cluster.Cluster, n *cluster.Node, ns, sub string) string {
	t.Helper()
	return may(t, c, n, ns, sub, "get,create", sub)
}

// may creates a service account with the given verbs for a subresource of nodes, and returns its token.
func may(t *testing.T, c *cluster.Cluster, n *cluster.Node, ns, account, verbs, sub string) string {
	t.Helper()
	name := n.Name + "-" + account
	c.Kubectl(t, "-n", ns, "create", "serviceaccount", account)
	c.Kubectl(t, "create", "clusterrole", name, "--verb="+verbs, "--resource=nodes/"+sub)
	c.Kubectl(t, "create", "clusterrolebinding", name, "--clusterrole="+name, "--serviceaccount="+ns+":"+account)
	t.Cleanup(func() { c.Kubectl(t, "delete", "clusterrolebinding,clusterrole", name) })
	return tokenOf(t, c, ns, account)
}

// tokenOf returns a token of a service account.
func tokenOf(t *testing.T, c *cluster.Cluster, ns, account string) string {
	t.Helper()
	return strings.TrimSpace(c.Kubectl(t, "-n", ns, "create", "token", account))
}

// ask sends a request to a node from the control plane's host.
func ask(t *testing.T, c *cluster.Cluster, method, url, token string) (code int, text string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: c.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// TestPorts checks the settings of ports, TLS and idle streams.
func TestPorts(t *testing.T) {
	c, n, ns := join(t, "--read-only-port=10255", "--healthz-bind-address=0.0.0.0", "--streaming-connection-idle-timeout=5s",
		"--tls-min-version=VersionTLS12", "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
	pods(t, c, ns, 1)
	for _, x := range []struct {
		port, path string
		code       int
		want       string
	}{
		{"10248", "/healthz", 200, "ok"},
		{"10248", "/pods", 404, ""},
		{"10255", "/healthz", 200, "ok"},
		{"10255", "/pods", 200, `"p0"`},
		{"10255", "/stats/summary", 200, `"p0"`},
		{"10255", "/metrics/resource", 200, `pod="p0"`},
		{"10255", "/containerLogs/" + ns + "/p0/c", 405, "Debug endpoints are disabled."},
		{"10255", "/exec/" + ns + "/p0/c?command=x", 405, "Debug endpoints are disabled."},
		{"10255", "/runningpods/", 405, "Debug endpoints are disabled."},
		{"10255", "/configz", 404, ""},
	} {
		code, text := ask(t, c, "GET", "http://"+n.Addr+":"+x.port+x.path, "")
		if code != x.code || !strings.Contains(text, x.want) {
			t.Errorf("port %s, %s: %d %.300q, want %d %q", x.port, x.path, code, text, x.code, x.want)
		}
	}
	for what, x := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"the one cipher suite": {&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}, true},
		"another cipher suite": {&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}, false},
		"an old version":       {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"the newest version":   {&tls.Config{MinVersion: tls.VersionTLS13}, true},
	} {
		x.config.InsecureSkipVerify = true
		raw, err := c.Dial(t.Context(), "tcp", n.Addr+":10250")
		if err != nil {
			t.Fatal(err)
		}
		if err := tls.Client(raw, x.config).HandshakeContext(t.Context()); (err == nil) != x.ok {
			t.Errorf("%s: %v", what, err)
		}
		raw.Close()
	}
	k := kubectl{Cluster: c, ns: ns}
	session := k.start(t, nil, "exec", "-i", "p0", "--", "/podtool", "cat")
	session.say(t, "echo\n", "echo\n")
	<-session.Ended // no data flows on the stream any more
	if session.ctx.Err() != nil {
		t.Error("the idle stream was not closed")
	}
}
