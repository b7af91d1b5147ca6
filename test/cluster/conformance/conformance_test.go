package conformance

import (
	"cmp"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// A report is what the suite writes in JUnit's form.
type report struct {
	Suites []struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Status  string `xml:"status,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// unreachable says why a spec cannot pass here; empty: it has to.
func unreachable(spec string) string {
	for part, why := range map[string]string{
		"should enable privileged commands": "it adds a network interface of type dummy, which not every kernel has",
	} {
		if strings.Contains(spec, part) {
			return why
		}
	}
	return ""
}

// Which specs run where nothing else is asked for: those that a node has to pass, but for
// those that want a cluster to themselves or take long.
const (
	defaultFocus = `\[sig-(node|storage|apps|network|auth)\].*\[(Node)?Conformance\]`
	defaultSkip  = `\[Serial\]|\[Disruptive\]|\[Slow\]|\[Flaky\]`
)

// TestSuite runs Kubernetes' own end-to-end specs, unchanged, against a node. All pass
// but those that cannot.
func TestSuite(t *testing.T) {
	dir := os.Getenv("ISLET_CONFORMANCE")
	if dir == "" {
		t.Skip("make conformance builds the suite and runs this test")
	}
	c := start(t, dir)
	junit, log := filepath.Join(dir, "junit.xml"), create(t, dir, "conformance.log")
	must(t, os.RemoveAll(junit))
	run := c.AdminCommand("KUBECONFIG", "KUBERNETES_CONFORMANCE_TEST=y", filepath.Join(dir, "ginkgo"), "--procs=4", "--silence-skips", "--no-color",
		"--focus="+cmp.Or(os.Getenv("ISLET_CONFORMANCE_FOCUS"), defaultFocus), "--skip="+cmp.Or(os.Getenv("ISLET_CONFORMANCE_SKIP"), defaultSkip),
		"--timeout=110m", "--junit-report="+junit,
		filepath.Join(dir, "e2e.test"), "--", "--provider=skeleton", "--num-nodes=1", "--allowed-not-ready-nodes=0")
	run.Stdout, run.Stderr = log, log
	ended := run.Run()
	b, err := os.ReadFile(junit)
	if err != nil {
		t.Fatalf("the suite has no report (%v, %v): see %s", ended, err, log.Name())
	}
	list := judge(t, b)
	if len(list) == 0 {
		t.Errorf("no spec ran: %v, see %s", ended, log.Name())
	}
	slices.Sort(list)
	must(t, os.WriteFile(filepath.Join(dir, "conformance.txt"), []byte(strings.Join(list, "\n")+"\n"), 0o644))
	t.Logf("%d specs, see %s", len(list), dir)
}

// start makes a control plane and a node with the suite's images and kube-proxy beside it.
func start(t *testing.T, dir string) *cluster.Cluster {
	t.Helper()
	c := cluster.Start(t)
	n := c.Node(t, "")
	nnp := filepath.Join(n.Disk, "nnp")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", nnp, "./critest/tool")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archive(t, filepath.Join(n.Disk, "state/images/suite.tar"), filepath.Join(dir, "agnhost"), nnp)
	n.Join()
	node := c.AwaitNode(t, n.Name, "to have a network", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" })
	// The API server reaches pods as it would where the network routes to them.
	if out, err := c.RunAsAdmin("KUBECONFIG", "ip", "route", "add", node.Spec.PodCIDR, "via", n.Addr); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	credentials, err := c.RunAsAdmin("OF", "sh", "-c", `cat "$OF"`)
	must(t, err)
	n.Write("proxy.conf", credentials)
	proxy := n.Command(filepath.Join(dir, "kube-proxy"), "--kubeconfig="+n.Disk+"/proxy.conf", "--proxy-mode=nftables", "--hostname-override="+n.Name, "--conntrack-max-per-core=0")
	log := create(t, dir, "kube-proxy.log")
	proxy.Stdout, proxy.Stderr = log, log
	_, err = machine.StartProcess(proxy)
	must(t, err)
	nameServer(t, c, dir)
	return c
}

// clusterDNS is the Service of the name server, which runs on the control plane's host.
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

// nameServer starts CoreDNS where the Service says.
func nameServer(t *testing.T, c *cluster.Cluster, dir string) {
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

// judge demands that each spec of a report passed that can, and lists them.
func judge(t *testing.T, junit []byte) (list []string) {
	t.Helper()
	var r report
	must(t, xml.Unmarshal(junit, &r))
	for _, s := range r.Suites {
		for _, x := range s.Cases {
			name, isSpec := strings.CutPrefix(x.Name, "[It] ")
			switch why := unreachable(name); {
			case x.Failure != nil && why != "":
				list = append(list, "cannot  "+name+": "+why)
			case x.Failure != nil:
				list = append(list, "FAIL    "+name)
				t.Errorf("%s: %s\n%.3000s", name, x.Failure.Message, x.Failure.Text)
			case x.Status == "passed" && isSpec:
				list = append(list, "pass    "+name)
			}
		}
	}
	return list
}
