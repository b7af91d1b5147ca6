package node

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// servedHead is the beginning of a KubeletConfiguration. Its kubelet API needs no authorization.
const servedHead = kubeletHead + "authorization: {mode: AlwaysAllow}\n"

const edgeHead = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"

// uplink is the address of the node's interface.
const uplink = "192.0.2.10"

// A servedNode is a node whose kubelet API is reachable from other machines.
type servedNode struct {
	*machine.Machine
	t    *testing.T
	http http.Client // the client has a certificate that the node accepts
}

// served starts a node with two pods and an address. It also returns the IDs of the containers.
func served(t *testing.T) (*servedNode, map[string]string) {
	t.Helper()
	m := bootMachine(t)
	m.Run("ip", "link", "add", "wan0", "type", "veth", "peer", "wan1")
	m.Run("ip", "address", "add", uplink+"/24", "dev", "wan0")
	m.Run("ip", "link", "set", "wan0", "up")
	m.Run("ip", "link", "set", "wan1", "up")
	m.Run("ip", "route", "add", "default", "via", "192.0.2.1")
	certificate := func(name string, args ...string) {
		m.Run("openssl", append([]string{"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=" + name,
			"-keyout", m.Disk + "/" + name + ".key", "-out", m.Disk + "/" + name + ".crt"}, args...)...)
	}
	certificate("ca")
	certificate("admin", "-CA", m.Disk+"/ca.crt", "-CAkey", m.Disk+"/ca.key")
	m.Write("kubelet.yaml",
		fmt.Sprintf("%scgroupRoot: %s\npodLogsDir: %s/logs\nauthentication: {x509: {clientCAFile: %[3]s/ca.crt}}\n", servedHead, m.Cgroup,
			m.Disk))
	own, err := tls.LoadX509KeyPair(m.Disk+"/admin.crt", m.Disk+"/admin.key")
	if err != nil {
		t.Fatal(err)
	}
	n := &servedNode{Machine: m, t: t}
	n.http = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: m.Dial, DisableKeepAlives: true, // the agent may have restarted
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{own}, InsecureSkipVerify: true}}} // the node's certificate is self-signed
	return n, started(m)
}

// get sends a request to the kubelet API at the node's address.
func (n *servedNode) get(port, path string) (status int, body string, _ error) {
	resp, err := n.http.Get("https://" + net.JoinHostPort(uplink, port) + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// portOf finds the port in a configuration. It does not match the port 0.
var portOf = regexp.MustCompile(`(?m)^(?:\{.*")?port"?: ?([1-9]\d*)`)

// reached checks that the kubelet API responds at the node's address. With the configuration of the local files, the API must list the
// pods. A configuration that was sent may change the port and reject the client.
func (n *servedNode) reached(s shownConfiguration) {
	n.t.Helper()
	own, port := s.Active.ID == "local", "10250"
	if found := portOf.FindStringSubmatch(s.Active.Kubelet); !own && found != nil {
		port = found[1]
	}
	n.Await("the kubelet API on port "+port, func() bool {
		status, body, err := n.get(port, "/pods")
		return err == nil && (!own || status == http.StatusOK && strings.Contains(body, `"one-edge"`) && strings.Contains(body, `"two-edge"`))
	})
}

// mayHarm lists the local fields that the harmful configurations may change with consent.
const mayHarm = "authentication.x509.clientCAFile,tlsCertFile,tlsPrivateKeyFile,resolvConf,staticPodURL,enableServer,address,port,readOnlyPort,healthzPort,healthzBindAddress," +
	"edge.statusPagePort,tlsMinVersion,tlsCipherSuites,authentication.anonymous.enabled,authentication.webhook.enabled,authorization.mode,clusterDNS,enforceNodeAllocatable," +
	"featureGates,localStorageCapacityIsolation,edge.devices,seccompDefault,rotateCertificates,enableDebuggingHandlers"

// harmful contains configurations that are valid or almost valid, and that may damage a node. Without ISLET_TEST_LONG the test uses only
// the first configurations.
var harmful = []string{
	servedHead + "readOnlyPort: 10248\n",
	servedHead + "maxPods: 0\n",
	servedHead + "port: 10248\n",
	servedHead + "address: 192.0.2.77\n",
	servedHead + "clusterDNS: [192.0.2.1]\nresolvConf: /nonexistent\n",
	servedHead + "authentication: {x509: {clientCAFile: /etc/hostname}}\n",
	strings.Replace(servedHead, "memory.available: 1Mi", "memory.available: 99.99%", 1),
	strings.Replace(servedHead, "memory.available: 1Mi", "nodefs.available: 99.9%, imagefs.available: 99.9%", 1),
	servedHead + "evictionSoft: {memory.available: 99.9%}\nevictionSoftGracePeriod: {memory.available: 1s}\nevictionMaxPodGracePeriod: 0\n",
	servedHead + "systemReserved: {memory: 1000Ti}\n",
	servedHead + "enforceNodeAllocatable: [pods]\nsystemReserved: {memory: 90%}\n",
	servedHead + "podPidsLimit: 1\n",
	servedHead + "maxOpenFiles: 1\n",
	servedHead + "enableServer: false\nhealthzPort: 0\n",
	edgeHead + "networkPlugin: cni\ncniConfDir: /nonexistent\n",
	edgeHead + "configuration: {healthyFor: 1ns, deadline: 1ns}\n",

	servedHead + "port: 0\n",
	servedHead + "port: 1\nenableServer: true\n",
	servedHead + "healthzBindAddress: 192.0.2.77\n",
	servedHead + "healthzPort: 10250\n",
	servedHead + "address: \"::1\"\n",
	servedHead + "maxPods: 2\npodsPerCore: 1\n",
	servedHead + "podsPerCore: 1\n",
	servedHead + "tlsCertFile: /etc/hostname\ntlsPrivateKeyFile: /etc/hostname\n",
	servedHead + "tlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA]\n",
	servedHead + "authentication: {anonymous: {enabled: true}}\n",
	kubeletHead + "authorization: {mode: Nobody}\n",
	kubeletHead + "authorization: {mode: Webhook}\n",
	strings.Replace(servedHead, "memory.available: 1Mi", "pid.available: 99.9%", 1),
	strings.Replace(servedHead, "memory.available: 1Mi", "nodefs.inodesFree: 99.9%", 1),
	strings.Replace(servedHead, "memory.available: 1Mi", "memory.available: 100%", 1),
	strings.Replace(servedHead, "memory.available: 1Mi", "memory.available: 10Ei", 1),
	servedHead + "systemReserved: {cpu: 100000}\n",
	servedHead + "kubeReserved: {cpu: 99, memory: 99Gi, pid: 1000000, ephemeral-storage: 99Ti}\n",
	servedHead + "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n",
	servedHead + "cpuManagerPolicy: static\nreservedSystemCPUs: 77\n",
	servedHead + "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 7, limits: {memory: 1Ti}}]\n",
	servedHead + "topologyManagerPolicy: single-numa-node\ntopologyManagerScope: pod\n",
	servedHead + "runtimeRequestTimeout: 1ns\n",
	servedHead + "syncFrequency: 1ns\nfileCheckFrequency: 1ns\n",
	servedHead + "syncFrequency: 8760h\nfileCheckFrequency: 8760h\n",
	servedHead + "nodeStatusUpdateFrequency: 1ns\nnodeLeaseDurationSeconds: 1\n",
	servedHead + "volumeStatsAggPeriod: 1ns\nhousekeepingInterval: 1ns\n",
	servedHead + "imageGCLowThresholdPercent: 99\n",
	strings.Replace(servedHead, "imageGCHighThresholdPercent: 100", "imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 1s\n", 1),
	servedHead + "imageMaximumGCAge: 1s\nimageMinimumGCAge: 0s\n",
	servedHead + "containerLogMaxSize: 1\ncontainerLogMaxFiles: 2\n",
	servedHead + "oomScoreAdj: 1000\n",
	servedHead + "registryPullQPS: 0\nregistryBurst: 0\nserializeImagePulls: false\nmaxParallelImagePulls: 100000\n",
	servedHead + "featureGates: {AllAlpha: true, AllBeta: false}\n",
	servedHead + "featureGates: {LocalStorageCapacityIsolationFSQuotaMonitoring: true, AllBeta: false}\n",
	servedHead + "protectKernelDefaults: true\nfailSwapOn: true\nfailCgroupV1: true\n",
	servedHead + "shutdownGracePeriod: 1ns\nshutdownGracePeriodCriticalPods: 8760h\n",
	servedHead + "logging: {format: json, verbosity: 4294967295}\n",
	servedHead + "staticPodURL: http://192.0.2.1/pods\n",
	servedHead + "containerRuntimeEndpoint: unix:///nonexistent\n",
	servedHead + "cgroupRoot: /elsewhere\ncgroupDriver: systemd\n",
	servedHead + "podCIDR: 127.0.0.0/8\n",
	servedHead + "memorySwap: {swapBehavior: LimitedSwap}\nmemoryThrottlingFactor: 0.000001\n",
	servedHead + "cpuCFSQuota: false\ncpuCFSQuotaPeriod: 1ms\n",
	servedHead + "localStorageCapacityIsolation: false\nenableControllerAttachDetach: false\n",
	servedHead + "userNamespaces: {idsPerPod: 65536000}\n",
	servedHead + "crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n",
	edgeHead + "networkPlugin: cni\n",
	edgeHead + "bridgeName: lo\n",
	edgeHead + "bridgeName: averyveryverylongname\n",
	edgeHead + "ociRuntime: /bin/false\n",
	edgeHead + "shimPods: 1\nflashBudget: 1\npodLogQuota: 1\n",
	edgeHead + "statusPagePort: 10250\n",
	edgeHead + "statusPagePort: 10248\n",
	edgeHead + "update: {archive: /dev/zero, every: 1ns}\n",
	edgeHead + "configuration: {configMap: a/b/c}\n",
	edgeHead + "devices: [{resource: islet.dev/all, match: {paths: [/dev/*]}}]\n",
	servedHead + "maxPods: 17\n---\n" + edgeHead + "networkPlugin: cni\n",
	servedHead + "---\n" + servedHead,
	"",
	"\x00",
	"{}",
	"&a [*a, *a]",
	strings.Repeat("#", 3<<20),
}

// A mutator generates configurations from the fields of docs/configuration.md. The configurations are the same in every run.
type mutator struct {
	*rand.Rand
	fields [][3]string // kind, path, default
}

// newMutator reads the fields from docs/configuration.md.
func newMutator(t *testing.T) *mutator {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(machine.Root(t), "docs/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := &mutator{Rand: rand.New(rand.NewPCG(3, 4))}
	kind := ""
	for line := range strings.Lines(string(text)) {
		if head, ok := strings.CutPrefix(line, "## "); ok {
			kind = strings.TrimSpace(head)
		}
		f := strings.Split(line, "|")
		if len(f) < 6 || !strings.HasSuffix(kind, "Configuration") {
			continue
		}
		if name := strings.TrimSpace(f[1]); name != "" && name != "Field" && !strings.HasPrefix(name, "-") {
			m.fields = append(m.fields, [3]string{kind, name, strings.TrimSpace(f[3])})
		}
	}
	if len(m.fields) < 100 {
		t.Fatalf("the reference has only %d fields", len(m.fields))
	}
	return m
}

// value returns a value for a field with the given default. It may be invalid.
func (m *mutator) value(def string) any {
	pick := func(all ...any) any { return all[m.IntN(len(all))] }
	_, isDuration := time.ParseDuration(def)
	n, isNumber := strconv.Atoi(def)
	switch {
	case m.IntN(5) == 0:
		return pick(nil, 0, -1, 1, "", "x", "0s", true, []string{}, []string{"x"}, map[string]string{}, map[string]string{"x": "y"}, "99%", 1e100)
	case def == "true":
		return false
	case def == "false":
		return true
	case isNumber == nil:
		return pick(0, 1, 2, -1, n+1, n*1000, 10250, 10248, 1<<31-1, 1<<40)
	case isDuration == nil:
		return pick("0s", "1ns", "1ms", "1s", "-1s", "8760h", "1")
	}
	return pick("", "x", "none", "/nonexistent", "/dev/zero", "/proc/self/mem", "192.0.2.1", "10.0.0.0/8", "99%", "1", "1Ti", []string{}, []string{"192.0.2.1"}, []string{"/nonexistent"},
		map[string]string{"memory": "1Ti"}, map[string]string{"memory.available": "99%"}, 0, 1<<20, true)
}

// fieldwise returns a configuration in which one to three fields have random values.
func (m *mutator) fieldwise() string {
	kind := m.fields[m.IntN(len(m.fields))][0]
	base := map[string]any{}
	if kind == "KubeletConfiguration" {
		base["failSwapOn"], base["imageGCHighThresholdPercent"], base["evictionHard"] = false, 100, map[string]any{"memory.available": "1Mi"}
		base["authorization"] = map[string]any{"mode": "AlwaysAllow"}
	}
	for n := 1 + m.IntN(3); n > 0; {
		f := m.fields[m.IntN(len(m.fields))]
		if f[0] != kind {
			continue
		}
		n--
		at, path := base, strings.Split(f[1], ".")
		for _, p := range path[:len(path)-1] {
			next, ok := at[p].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[p] = next
			}
			at = next
		}
		at[path[len(path)-1]] = m.value(f[2])
	}
	base["kind"], base["apiVersion"] = kind, map[bool]string{true: "kubelet.config.k8s.io/v1beta1", false: "islet.dev/v1alpha1"}[kind == "KubeletConfiguration"]
	text, err := json.Marshal(base)
	if err != nil {
		panic(err) // all values can be encoded
	}
	return string(text) + "\n"
}

// bytewise returns a harmful configuration in which some bytes are changed.
func (m *mutator) bytewise() string {
	text := []byte(harmful[m.IntN(len(harmful))])
	for range 1 + m.IntN(3) {
		if len(text) == 0 {
			break
		}
		i := m.IntN(len(text))
		switch m.IntN(4) {
		case 0:
			text[i] = byte(m.IntN(256))
		case 1:
			text = append(text[:i], text[i+1:]...)
		case 2:
			const marks = "0123456789:{}[]-&*!|>'\"%@\t\n "
			text = slices.Insert(text, i, marks[m.IntN(len(marks))])
		case 3:
			text = append(text, text[i:]...)
		}
	}
	return string(text)
}

// TestHarmfulConfigurations checks that no configuration makes a node unreachable. After each configuration the kubelet API must respond
// before the deadline of the trial, and the pods must not restart. With ISLET_TEST_LONG the test sends 200 configurations.
func TestHarmfulConfigurations(t *testing.T) {
	t.Parallel()
	n, ids := served(t)
	m := n.Machine
	s := awaitShown(m)
	n.reached(s)
	all := harmful[:8]
	if os.Getenv("ISLET_TEST_LONG") != "" {
		mutants := newMutator(t)
		for all = harmful; len(all) < 200; {
			if all = append(all, mutants.fieldwise()); len(all)%3 == 0 {
				all = append(all, mutants.bytewise())
			}
		}
		all = all[:200]
		all = all[slice(t, 0, 200):slice(t, 1, 200)]
	}
	outcomes := map[string]int{}
	for i, text := range all {
		began := time.Now()
		out, code := apply(m, text, "--consent", mayHarm)
		took := time.Since(began)
		what := "refused"
		s, ok := show(m)
		switch {
		case !ok || s.Trying || s.Assigned != nil || s.Active != s.LastKnownGood:
			t.Fatalf("%d: %s\nthe trial has not ended after %v: %s\n%+v", i, shortened(text), took, out, s)
		case code == 0:
			what = "in use"
			if !strings.Contains(out, "is in use") {
				t.Errorf("%d: %s\n%s", i, shortened(text), out)
			}
		case strings.Contains(out, " failed, "):
			what = "failed"
		case strings.TrimSpace(out) == "" || strings.Contains(out, "goroutine "):
			t.Errorf("%d: %s\n%s", i, shortened(text), out)
		}
		outcomes[what]++
		t.Logf("%3d %4.1fs %s: %s\n%s", i, took.Seconds(), what, shortened(text), shortened(out))
		if took > 40*time.Second { // the deadline is 15 s, and two agents start
			t.Errorf("%d: the trial took %v", i, took)
		}
		unharmed(t, m, ids)
		n.reached(s)
		if s.Active.ID != "local" {
			if out, code := m.Try("config", "revert"); code != 0 {
				t.Fatalf("%d: config revert failed after %s: %s", i, shortened(text), out)
			}
			unharmed(t, m, ids)
			s = awaitShown(m)
			n.reached(s)
		}
	}
	t.Log(outcomes)
	if len(outcomes) < 3 && os.Getenv("ISLET_TEST_SLICE") == "" {
		t.Errorf("some outcome is missing: %v", outcomes)
	}
}

// shortened returns a short form of a configuration for the test's log.
func shortened(text string) string {
	text = strings.TrimPrefix(strings.TrimPrefix(text, servedHead), edgeHead)
	return fmt.Sprintf("%.300q", text)
}
