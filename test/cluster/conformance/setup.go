package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// namedTest is a test with a suffix in its name. A node is named after its test, so a test with two nodes needs two names.
type namedTest struct {
	testing.TB
	suffix string
}

func (n namedTest) Name() string { return n.TB.Name() + n.suffix }

// start creates a control plane with a name server, and two nodes with images and kube-proxy. The pods of each node can connect to the pods
// of the other node, and to the API server's host. The given function must start islet on a node with the node's flags, and wait until the
// node has joined the cluster.
func start(t *testing.T, dir string, set map[string]image, join func(*cluster.Node)) (*cluster.Cluster, []*cluster.Node) {
	t.Helper()
	c := cluster.Start(t)
	images, registry := suiteImages(t, dir, set)
	at := registry.serve(t, c)
	credentials, err := c.RunAsAdmin("OF", "sh", "-c", `cat "$OF"`)
	must(t, err)
	// The API server connects to Services, so the API server's host needs kube-proxy and a route.
	if out, err := c.RunAsAdmin("CONF", "ip", "route", "add", "10.96.0.0/16", "dev", "lan0"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	startProxy(t, dir, "control", func(name string, args ...string) *exec.Cmd {
		return c.AdminCommand("CONF", append([]string{name}, args...)...)
	})
	var nodes []*cluster.Node
	for _, suffix := range []string{"-one", "-two"} {
		n := c.Node(namedTest{t, suffix}, "")
		prepareNode(t, n, images, at, "")
		join(n)
		n.Write("proxy.conf", credentials)
		startProxy(t, dir, n.Name, func(name string, args ...string) *exec.Cmd {
			return n.Command("env", append([]string{"CONF=" + n.Disk + "/proxy.conf", name}, args...)...)
		})
		nodes = append(nodes, n)
	}
	addRoutes(t, c, nodes)
	startNameServer(t, c, dir)
	return c, nodes
}

// suiteImages creates the archive of the suite's images and the registry with these images.
func suiteImages(t *testing.T, dir string, set map[string]image) (string, *registry) {
	t.Helper()
	nnp, archived := filepath.Join(dir, "nnp"), filepath.Join(os.TempDir(), fmt.Sprintf("islet-suite-%d.tar", os.Getpid()))
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", nnp, "./critest/tool")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { os.Remove(archived) })
	return archived, writeArchive(t, archived, dir, set)
}

// startProxy starts kube-proxy on a machine. In the environment of the given command, CONF must
// contain the path of a kubeconfig.
func startProxy(t *testing.T, dir, name string, command func(string, ...string) *exec.Cmd) {
	t.Helper()
	p := command("sh", "-c", `exec "$0" --kubeconfig="$CONF" "$@"`, filepath.Join(dir, "kube-proxy"), "--proxy-mode=nftables",
		"--hostname-override="+name, "--conntrack-max-per-core=0")
	log := create(t, dir, "kube-proxy-"+name+".log")
	p.Stdout, p.Stderr = log, log
	_, err := machine.StartProcess(p)
	must(t, err)
}

// addRoutes makes the control plane's host the router between nodes and their pods. This also lets the API server connect to pods.
func addRoutes(t *testing.T, c *cluster.Cluster, nodes []*cluster.Node) {
	t.Helper()
	on := func(args ...string) {
		t.Helper()
		if out, err := c.RunAsAdmin("KUBECONFIG", args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	on("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.lan0.send_redirects=0")
	for _, n := range nodes {
		node := c.AwaitNode(t, n.Name, "to have a network", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" })
		on("ip", "route", "add", node.Spec.PodCIDR, "via", n.Addr)
		for _, other := range nodes {
			if other == n {
				continue
			}
			for _, to := range []string{n.Addr + "/32", node.Spec.PodCIDR} {
				other.Run("ip", "route", "add", to, "via", "10.97.0.1")
			}
		}
	}
}

// clusterDNS is a manifest with the Service of the name server and its endpoint. The name server
// runs on the control plane's host.
const clusterDNS = `apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: [10.97.0.1]}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`

// corefile configures CoreDNS as kubeadm does.
const corefile = `.:53 {
	errors
	kubernetes cluster.local in-addr.arpa ip6.arpa {
		kubeconfig {$KUBECONFIG}
		pods insecure
	}
}
`

// startNameServer starts CoreDNS at the endpoint of the Service.
func startNameServer(t *testing.T, c *cluster.Cluster, dir string) {
	t.Helper()
	c.Apply(t, clusterDNS)
	conf := filepath.Join(t.TempDir(), "Corefile")
	must(t, os.WriteFile(conf, []byte(corefile), 0o644))
	dns := c.AdminCommand("KUBECONFIG", filepath.Join(dir, "coredns"), "-conf", conf)
	log := create(t, dir, "coredns.log")
	dns.Stdout, dns.Stderr = log, log
	_, err := machine.StartProcess(dns)
	must(t, err)
}

func create(t *testing.T, dir, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, name))
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
