package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

const kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// writeFiles writes files to a temporary directory and returns its path.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func mustLoad(t *testing.T, args ...string) (*Config, []Notice) {
	t.Helper()
	c, notices, err := Load(append([]string{"--hostname-override=node"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return c, notices
}

// TestProductionExample checks that every value of a typical configuration from production guides is applied.
func TestProductionExample(t *testing.T) {
	c, notices := mustLoad(t, "--config=testdata/production.yaml")
	file, err := filepath.Abs("testdata/production.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var raw kubelet.KubeletConfiguration
	doc, err := readDocument(&ownFiles{}, file, kubeletAPIVersion, kubeletKind, &raw)
	if err != nil {
		t.Fatal(err)
	}
	raw.Authentication.X509.ClientCAFile = filepath.Join(filepath.Dir(file), raw.Authentication.X509.ClientCAFile) // relative to the file
	given, err1 := decodeTree(mustJSON(t, &raw))
	loaded, err2 := decodeTree(mustJSON(t, &c.Kubelet))
	asked, err3 := decodeTree(doc.json)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	leavesOf := func(tree any) map[string]any {
		m := map[string]any{}
		walkLeaves(tree, "", func(path string, value, _ any) { m[path] = value })
		return m
	}
	want, have := leavesOf(given), leavesOf(loaded)
	for path := range leavesOf(asked) {
		if want[path] != have[path] {
			t.Errorf("%s is %v, not %v", path, have[path], want[path])
		}
	}
	if c.ContainerLogMaxSize != 5<<20 || c.CPUPeriod != 100_000 || c.CrashMax != 5*time.Minute {
		t.Errorf("derived: %d %d %v", c.ContainerLogMaxSize, c.CPUPeriod, c.CrashMax)
	}
	var told []string
	for _, n := range notices {
		told = append(told, strings.TrimPrefix(n.Subject, file+": "))
	}
	slices.Sort(told)
	later := []string{}
	if !slices.Equal(told, later) {
		t.Errorf("no effect is said of %v, want %v", told, later)
	}
}

// dropinArgs returns the flags in islet's drop-in for kubeadm, without the flag for the file that kubeadm writes.
func dropinArgs(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../../packaging/kubeadm/10-kubeadm.conf")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for line := range strings.SplitSeq(string(data), "\n") {
		if env, ok := strings.CutPrefix(line, "Environment="); ok {
			_, flags, _ := strings.Cut(strings.Trim(env, `"`), "=")
			args = append(args, strings.Fields(flags)...)
		}
	}
	if len(args) != 4 {
		t.Fatalf("got %q", args)
	}
	return slices.DeleteFunc(args, func(a string) bool { return a == "--config=/var/lib/kubelet/config.yaml" })
}

// TestKubeadmChain checks that the arguments that kubeadm and systemd pass are valid.
func TestKubeadmChain(t *testing.T) {
	dir := writeFiles(t, map[string]string{"config.yaml": kubeletHead + `
cpuManagerReconcilePeriod: 0s
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
staticPodPath: /etc/kubernetes/manifests
nodeStatusReportFrequency: 0s
`})
	args := append(dropinArgs(t), "--config="+filepath.Join(dir, "config.yaml"),
		// These arguments are in kubeadm-flags.env of older versions, followed by KUBELET_EXTRA_ARGS.
		"--container-runtime=remote", "--pod-infra-container-image=registry.k8s.io/pause:3.10", "--network-plugin=cni",
		"", "--node-ip=192.0.2.7", "--v=2", "--v", "5")
	c, notices := mustLoad(t, args...)
	if c.Kubelet.FileCheckFrequency.Duration != 20*time.Second || c.Kubelet.NodeStatusReportFrequency.Duration != 5*time.Minute {
		t.Error("0s must mean the default")
	}
	if c.LogLevel != slog.Level(-5) || c.Kubeconfig == "" || c.Node.IPs[0].String() != "192.0.2.7" {
		t.Errorf("got %+v", c)
	}
	var told []string
	for _, n := range notices {
		told = append(told, n.Subject)
	}
	for _, want := range []string{"--container-runtime", "--pod-infra-container-image", "--network-plugin"} {
		if !slices.Contains(told, want) {
			t.Errorf("%s has no effect and no notice", want)
		}
	}
	for _, n := range told {
		if strings.Contains(n, "config.yaml") {
			t.Errorf("%s is the default: nothing to say", n)
		}
	}
}

// TestGatesTold checks that a notice names each feature gate that has no effect. A gate with an effect must cause no notice.
func TestGatesTold(t *testing.T) {
	dir := writeFiles(t, map[string]string{"c.yaml": kubeletHead + "featureGates: {MemoryQoS: true, LoggingAlphaOptions: true, RotateKubeletServerCertificate: true, ContainerStopSignals: true, ClusterTrustBundle: false, SELinuxMount: false, AllBeta: true}"})
	_, notices := mustLoad(t, "--config="+filepath.Join(dir, "c.yaml"))
	var told []string
	for _, n := range notices {
		told = append(told, strings.TrimPrefix(n.Subject, filepath.Join(dir, "c.yaml")+": "))
	}
	if want := []string{"featureGates.ClusterTrustBundle", "featureGates.ContainerStopSignals"}; !slices.Equal(told, want) {
		t.Errorf("%q, not %q", told, want)
	}
}

// TestServesTheEndpointInItsRunDirectory checks that islet serves CRI at an endpoint in its run directory, so kubeadm with --cri-socket
// needs no EdgeConfiguration.
func TestServesTheEndpointInItsRunDirectory(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
		told bool
	}{
		{[]string{"--container-runtime-endpoint=unix:///run/islet/cri.sock"}, "/run/islet/cri.sock", false},
		{[]string{"--container-runtime-endpoint=/r/cri.sock", "--image-service-endpoint=unix:///r/cri.sock", "--run-dir=/r"}, "/r/cri.sock", false},
		{[]string{"--container-runtime-endpoint=unix:///run/containerd/containerd.sock"}, "", false},
		{nil, "", false},
	} {
		cfg, notices := mustLoad(t, c.args...)
		if cfg.Edge.CRISocket != c.want || c.told != (len(notices) > 0) {
			t.Errorf("%v: CRI endpoint %q, notices %v", c.args, cfg.Edge.CRISocket, notices)
		}
	}
}

func TestDropins(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"base.yaml":          kubeletHead + "maxPods: 20\nclusterDNS: [10.0.0.1, 10.0.0.2]\nevictionHard: {memory.available: 50Mi}\nport: 11",
		"d/10-a.conf":        kubeletHead + "maxPods: 30\nclusterDNS: [10.0.0.3]\nevictionHard: {nodefs.available: 1%}",
		"d/20-b.conf":        kubeletHead + "maxPods: 40\nfeatureGates: {NodeLogQuery: true, SELinuxMount: true}\neventRecordQPS: 9007199254",
		"d/99/30-c.conf":     `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","readOnlyPort":12}`,
		"d/25-ignored.yaml":  "nonsense",
		"d/26-ignored.conf~": "nonsense",
	})
	base, drop := "--config="+filepath.Join(dir, "base.yaml"), "--config-dir="+filepath.Join(dir, "d")
	if _, _, err := Load([]string{base, drop}); err == nil || !strings.Contains(err.Error(), "20-b.conf:5: eventRecordQPS: must be a whole number of at most 32 bits, not 9007199254") {
		t.Fatalf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "d/20-b.conf"),
		[]byte(kubeletHead+"maxPods: 40\nfeatureGates: {NodeLogQuery: true, SELinuxMount: true}"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, _ := mustLoad(t, base, drop, "--port=13", "--feature-gates=SELinuxMount=false,WatchList=true")
	k := &c.Kubelet
	if k.MaxPods != 40 || k.Port != 13 || k.ReadOnlyPort != 12 || !slices.Equal(k.ClusterDNS, []string{"10.0.0.3"}) {
		t.Errorf("later and stronger must win: %d %d %d %v", k.MaxPods, k.Port, k.ReadOnlyPort, k.ClusterDNS)
	}
	if k.EvictionHard["memory.available"] != "50Mi" || k.EvictionHard["nodefs.available"] != "1%" || len(k.EvictionHard) != 2 {
		t.Errorf("maps must merge: %v", k.EvictionHard)
	}
	if g := k.FeatureGates; !g["NodeLogQuery"] || g["SELinuxMount"] || !g["WatchList"] {
		t.Errorf("gates of files and flags must merge: %v", g)
	}
	c, _ = mustLoad(t, drop)
	if c.Kubelet.MaxPods != 40 || c.Kubelet.EvictionHard["memory.available"] != "100Mi" {
		t.Error("drop-ins must work without a file")
	}
}

func TestFlags(t *testing.T) {
	c, _ := mustLoad(t,
		"--cluster-dns=10.0.0.1", "--cluster-dns=10.0.0.2,10.0.0.3",
		"--eviction-hard=memory.available<50Mi,nodefs.available<5%", "--system-reserved=cpu=100m,memory=1Gi",
		"--manifest-url=https://x.example/p", "--manifest-url-header=A:b,A:c", "--manifest-url-header=D:e:f",
		"--register-with-taints=k=v:NoSchedule,l:NoExecute", "--node-labels=a=b", "--node-labels=c=d",
		"--reserved-memory=0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=1Gi",
		"--fail_swap_on=false", "--enable-server", "--pod-max-pids=100", "--max-pods=5", "--max-pods=6",
		"--serialize-image-pulls=false", "--event-burst=0", "--node-ip=192.0.2.1,2001:db8::1", "--pod-cidr=10.9.1.5/16,fd00::/64",
		"-v4", "--logtostderr", "--cni-bin-dir=/a,/b")
	k := &c.Kubelet
	for what, ok := range map[string]bool{
		"lists add up":              slices.Equal(k.ClusterDNS, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}),
		"thresholds replace":        len(k.EvictionHard) == 2 && k.EvictionHard["nodefs.available"] == "5%",
		"map":                       k.SystemReserved["memory"] == "1Gi",
		"headers":                   slices.Equal(k.StaticPodURLHeader["A"], []string{"b", "c"}) && k.StaticPodURLHeader["D"][0] == "e:f",
		"taints":                    slices.Equal(k.RegisterWithTaints, []v1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "l", Effect: "NoExecute"}}),
		"labels":                    c.Node.Labels["a"] == "b" && c.Node.Labels["c"] == "d",
		"reserved memory":           len(k.ReservedMemory) == 2 && k.ReservedMemory[0].Limits.Memory().Value() == 1<<30,
		"underscores":               !*k.FailSwapOn,
		"pointers":                  *k.PodPidsLimit == 100 && *k.EnableServer && !*k.SerializeImagePulls,
		"last wins":                 k.MaxPods == 6,
		"zero by flag is zero":      k.EventBurst == 0,
		"dual stack":                len(c.Node.IPs) == 2 && len(c.PodCIDRs) == 2,
		"networks are masked":       c.PodCIDRs[0].String() == "10.9.0.0/16",
		"shorthand":                 c.LogLevel == slog.LevelDebug,
		"lists replace the default": slices.Equal(c.Edge.CNIBinDirs, []string{"/a", "/b"}),
	} {
		if !ok {
			t.Error(what)
		}
	}
	other, _ := mustLoad(t, "--kubeconfig=/k")
	if *other.Kubelet.FailSwapOn != true || other.Kubelet.ClusterDNS != nil {
		t.Error("a Load has changed the result of another Load")
	}
}

func TestCommandLineErrors(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"--hostname-overide=x", "did you mean --hostname-override?"},
		{"--pod-manifest=x", "did you mean --pod-manifest-path?"},
		{"--completely-different-thing", "see islet --help"},
		{"--port=abc", `"abc" is not an integer of 32 bits`},
		{"--sync-frequency=5", "is not a duration"},
		{"--fail-swap-on=maybe", "neither true nor false"},
		{"--feature-gates=A", "not of the form key=value"},
		{"--register-with-taints=a", "not of the form key=value:Effect"},
		{"status", `unexpected argument "status"`},
		{"--hostname-override=Bad_Name", "is not a valid node name"},
		{"--node-ip=192.0.2.1,192.0.2.2", "one of each family"},
		{"--node-ip=0.0.0.0,::", "stands alone"},
		{"--node-ip=foo", "is not an IP address"},
		{"--pod-cidr=10.0.0.0", "not a network"},
		{"--pod-cidr=10.0.0.0/31", "too small"},
		{"--root-dir=", "--root-dir must not be empty"},
		{"--config=/does/not/exist", "no such file"},
		{"--config-dir=/does/not/exist", "no such file"},
		{"--node-labels=kubernetes.io/x=y", "a node may not set this label"},
		{"--run-dir=/" + strings.Repeat("x", 120), "too long for the paths of sockets"},
	} {
		if _, _, err := Load([]string{c.arg}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.arg, err, c.want)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"--version", "Kubernetes v1.37.2\n"},
		{"--version=true", "Kubernetes v1.37.2\n"},
		{"--version=raw", `GitVersion:"v1.37.2"`},
		{"--version=raw", `Minor:"37"`},
		{"--help", "--pod-manifest-path"},
		{"-h", "--state-dir"},
	} {
		_, _, err := Load([]string{c.arg})
		var asked *InfoRequest
		if !errors.As(err, &asked) || !strings.Contains(asked.Text, c.want) {
			t.Errorf("%s: got %v", c.arg, err)
		}
	}
	if _, _, err := Load([]string{"--version=false", "--hostname-override=n"}); err != nil {
		t.Error(err)
	}
}

// TestDirectoriesKeepAgentsApart checks that agents with different directories share no path, cgroup or socket.
func TestDirectoriesKeepAgentsApart(t *testing.T) {
	a, _ := mustLoad(t, "--root-dir=/a/root", "--state-dir=/a/state", "--run-dir=/a/run")
	b, _ := mustLoad(t, "--root-dir=/b/root", "--state-dir=/b/state", "--run-dir=/b/run")
	places := func(c *Config) []string {
		return []string{c.Dirs.Root, c.Dirs.State, c.Dirs.Run, c.Dirs.Cert, c.Edge.ImagesDir, c.Kubelet.PodLogsDir, c.Dirs.LogLinks, c.Kubelet.CgroupRoot}
	}
	for i, p := range places(a) {
		if p == "" || p == places(b)[i] {
			t.Errorf("both have %q", p)
		}
	}
	c, _ := mustLoad(t)
	if c.Kubelet.PodLogsDir != "/var/log/pods" || c.Dirs.LogLinks != "/var/log/containers" || c.Kubelet.CgroupRoot != "" ||
		c.Dirs.Cert != "/var/lib/kubelet/pki" {
		t.Errorf("the defaults must be the kubelet's: %v", places(c))
	}
	c, _ = mustLoad(t, "--state-dir=/a/state", "--cgroup-root=/")
	if c.Kubelet.CgroupRoot != "/" {
		t.Error("a cgroupRoot that is given must hold")
	}
}

func TestDerivedSettings(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"some.yaml": kubeletHead + "cpuCFSQuotaPeriod: 20ms\ncrashLoopBackOff: {maxContainerRestartPeriod: 3s}",
		"none.yaml": kubeletHead + "cpuCFSQuota: false\nfeatureGates: {KubeletCrashLoopBackOffMax: false}",
	})
	for file, want := range map[string]Config{
		"some.yaml": {CPUPeriod: 20_000, CrashMax: 3 * time.Second},
		"none.yaml": {CPUPeriod: -1},
	} {
		if c, _ := mustLoad(t, "--config="+filepath.Join(dir, file)); c.CPUPeriod != want.CPUPeriod || c.CrashMax != want.CrashMax {
			t.Errorf("%s: CPU period %d, longest back-off %v", file, c.CPUPeriod, c.CrashMax)
		}
	}
}

// TestFlagValues checks that /flagz shows the value of every flag that has an effect. The value comes from the defaults, a file or the
// command line. No password is shown.
func TestFlagValues(t *testing.T) {
	file := filepath.Join(writeFiles(t, map[string]string{"kubelet.yaml": kubeletHead + "maxPods: 42\n"}), "kubelet.yaml")
	cfg, _, err := Load([]string{"--hostname-override=n", "--config=" + file, "--v=3", "--manifest-url=http://x/", "--manifest-url-header=Authorization:secret", "--vmodule=x=1", "--vmodule=y/z=4", "--lock-file=/x"})
	if err != nil {
		t.Fatal(err)
	}
	flags := cfg.Flags()
	for _, want := range []string{"max-pods=42", "v=3", "root-dir=/var/lib/kubelet", "fail-swap-on=false", "manifest-url-header=CLASSIFIED", "config=" + file, "vmodule=x=1,y/z=4"} {
		if !slices.Contains(flags, want) {
			t.Errorf("no %s in %q", want, flags)
		}
	}
	if all := strings.Join(flags, "\n"); strings.Contains(all, "secret") || strings.Contains(all, "lock-file") || !slices.IsSorted(flags) {
		t.Error(all)
	}
}

// TestPollPeriod checks that the polling period is a third longer than syncFrequency, and has a minimum and a default.
func TestPollPeriod(t *testing.T) {
	for frequency, want := range map[time.Duration]time.Duration{0: 80 * time.Second, time.Nanosecond: 4 * time.Second / 3, 3 * time.Second: 4 * time.Second, time.Minute: 80 * time.Second} {
		c := &Config{}
		c.Kubelet.SyncFrequency.Duration = frequency
		if got := c.PollPeriod(); got != want {
			t.Errorf("syncFrequency %s: every %s, not %s", frequency, got, want)
		}
	}
}

// TestK3sDirectory checks that a node uses the kubeconfig of the directory of islet join, unless the command line names another one.
func TestK3sDirectory(t *testing.T) {
	dir := t.TempDir()
	edge := filepath.Join(dir, "edge.yaml")
	if err := os.WriteFile(edge, []byte("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nk3s: {directory: k3s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ flag, want string }{
		{"--edge-config=" + edge, filepath.Join(dir, "k3s/kubelet.kubeconfig")}, {"--kubeconfig=/other", "/other"}, {"--bootstrap-kubeconfig=/b", ""},
	} {
		c, _, err := Load([]string{"--edge-config=" + edge, tt.flag})
		if err != nil {
			t.Fatal(err)
		}
		if c.Kubeconfig != tt.want || c.Standalone() || c.Edge.K3s.Directory != filepath.Join(dir, "k3s") {
			t.Errorf("%s: %q, %q", tt.flag, c.Kubeconfig, c.Edge.K3s.Directory)
		}
	}
}
