package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/islet-edge/islet/internal/release"
)

// withSysctls is the beginning of a configuration with defaultPodSysctls.
const withSysctls = "featureGates: {DefaultPodSysctls: true}\ndefaultPodSysctls: {"

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

func TestValidation(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"evictionHard: {memory.available: lots}", `evictionHard[memory.available]: Invalid value: "lots"`},
		{"evictionHard: {memory.available: -1Mi}", "evictionHard[memory.available]: Invalid value"},
		{"evictionHard: {memory.available: 0}", "wrong"},
		{`evictionHard: {memory.available: "0"}`, "evictionHard[memory.available]: Invalid value"},
		{"evictionHard: {memory.available: 101%}", "evictionHard[memory.available]: Invalid value"},
		{"evictionHard: {memory.available: NaN%}", "evictionHard[memory.available]: Invalid value"},
		{"evictionHard: {cpu.available: 1%}", "evictionHard[cpu.available]: Unsupported value"},
		{"evictionSoft: {memory.available: 1Gi}", "evictionSoftGracePeriod[memory.available]: Required value"},
		{"evictionSoftGracePeriod: {memory.available: soon}", "evictionSoftGracePeriod[memory.available]: Invalid value"},
		{"evictionMinimumReclaim: {x: 1Gi}", "evictionMinimumReclaim[x]: Unsupported value"},
		{"imageGCHighThresholdPercent: 101", "imageGCHighThresholdPercent: Invalid value: 101"},
		{"imageGCLowThresholdPercent: 85", "imageGCLowThresholdPercent: Invalid value: 85: must be less than"},
		{"imageMaximumGCAge: 1m", "imageMaximumGCAge: Invalid value"},
		{"imageMinimumGCAge: -1m", "imageMinimumGCAge: Invalid value"},
		{"maxParallelImagePulls: 0", "maxParallelImagePulls: Invalid value"},
		{"maxParallelImagePulls: 2\nserializeImagePulls: true", "must be 1 unless serializeImagePulls is false"},
		{"allowedUnsafeSysctls: [kernel.core_pattern]", "allowedUnsafeSysctls[0]: Invalid value: \"kernel.core_pattern\": is not a known namespaced sysctl"},
		{"allowedUnsafeSysctls: [net.core.*, vm.*]", "allowedUnsafeSysctls[1]: Invalid value: \"vm.*\": is not a known namespaced sysctl"},
		{"allowedUnsafeSysctls: [net.*.foo]", "allowedUnsafeSysctls[0]: Invalid value: \"net.*.foo\": must be the name"},
		{"allowedUnsafeSysctls: [net/../kernel/*]", "allowedUnsafeSysctls[0]: Invalid value: \"net/../kernel/*\": must be the name"},
		{"allowedUnsafeSysctls: ['*']", "allowedUnsafeSysctls[0]: Invalid value: \"*\": is not a known"},
		{"allowedUnsafeSysctls: [user.max_net_namespaces]", "allowedUnsafeSysctls[0]: Invalid value: \"user.max_net_namespaces\": is a sysctl of user namespaces"},
		{"defaultPodSysctls: {net.core.somaxconn: '1'}", "defaultPodSysctls: Forbidden: needs the feature gate DefaultPodSysctls"},
		{withSysctls + "vm.swappiness: '1'}", "defaultPodSysctls[vm.swappiness]: Invalid value: \"1\": is not a known namespaced sysctl"},
		{withSysctls + "'net.*': '1'}", "defaultPodSysctls[net.*]: Invalid value: \"1\": is not the name of a sysctl"},
		{withSysctls + "Net.core.x: '1'}", "defaultPodSysctls[Net.core.x]: Invalid value: \"1\": is not the name of a sysctl"},
		{withSysctls + "user.max_net_namespaces: '1'}", "defaultPodSysctls[user.max_net_namespaces]: Invalid value: \"1\": is a sysctl of user namespaces"},
		{withSysctls + "net.core.somaxconn: '1', net/core/somaxconn: '2'}", "defaultPodSysctls[net/core/somaxconn]: Invalid value: \"2\": the sysctl net.core.somaxconn is in the list twice"},
		{"featureGates: {SidecarContainers: true}", "featureGates[SidecarContainers]: Invalid value: true: Kubernetes 1.37 has no such feature gate"},
		{"featureGates: {JobSuccessPolicy: true}", "featureGates[JobSuccessPolicy]: Invalid value: true: Kubernetes 1.37 has no such feature gate"},
		{"port: 70000", "port: Invalid value: 70000"},
		{"readOnlyPort: -1", "readOnlyPort: Invalid value"},
		{"healthzPort: 65536", "healthzPort: Invalid value"},
		{"address: localhost", "address: Invalid value"},
		{"healthzBindAddress: 1.2.3", "healthzBindAddress: Invalid value"},
		{"authorization: {mode: Never}", "authorization.mode: Unsupported value"},
		{"nodeLeaseDurationSeconds: -1", "nodeLeaseDurationSeconds: Invalid value"},
		{"eventBurst: -1", "eventBurst: Invalid value"},
		{"eventRecordQPS: -1", "eventRecordQPS: Invalid value"},
		{"registryPullQPS: -1", "registryPullQPS: Invalid value"},
		{"registryBurst: -1", "registryBurst: Invalid value"},
		{"kubeAPIQPS: -1", "kubeAPIQPS: Invalid value"},
		{"kubeAPIBurst: -1", "kubeAPIBurst: Invalid value"},
		{"maxPods: -1", "maxPods: Invalid value"},
		{"podsPerCore: -1", "podsPerCore: Invalid value"},
		{"maxOpenFiles: -1", "maxOpenFiles: Invalid value"},
		{"oomScoreAdj: -1001", "oomScoreAdj: Invalid value"},
		{"nodeStatusMaxImages: -2", "nodeStatusMaxImages: Invalid value"},
		{"iptablesDropBit: 32", "iptablesDropBit: Invalid value"},
		{"iptablesMasqueradeBit: -1", "iptablesMasqueradeBit: Invalid value"},
		{"syncFrequency: -1s", "syncFrequency: Invalid value"},
		{"cpuCFSQuotaPeriod: 2s", "cpuCFSQuotaPeriod: Invalid value"},
		{"systemCgroups: /x", "cgroupRoot: Required value"},
		{"cgroupRoot: /\nsystemCgroups: //", "systemCgroups: Invalid value: \"//\": must not be the root"},
		{"cgroupRoot: x", "cgroupRoot: Invalid value"},
		{"contentType: application/yaml", "contentType: Unsupported value"},
		{"logging: {format: json, vmodule: [{filePattern: x, verbosity: 4}]}", "logging.vmodule: Forbidden"},
		{"logging: {options: {text: {splitStream: true}}}", "logging.options.text.splitStream: Forbidden: needs the feature gate LoggingAlphaOptions"},
		{"logging: {options: {json: {infoBufferSize: 1Mi}}}\nfeatureGates: {LoggingAlphaOptions: true}", "logging.options.json.infoBufferSize: Forbidden: log lines are not buffered"},
		{"imageServiceEndpoint: unix:///run/containerd/containerd.sock", "imageServiceEndpoint: Forbidden"},
		{"cgroupDriver: docker", "cgroupDriver: Unsupported value"},
		{"showHiddenMetricsForVersion: '1.34'", "showHiddenMetricsForVersion: Invalid value"},
		{"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['https://reg']", "preloadedImagesVerificationAllowlist[0]: Invalid value"},
		{"runOnce: true", "runOnce: Forbidden"},
		{"serverTLSBootstrap: true\nfeatureGates: {RotateKubeletServerCertificate: false}", "serverTLSBootstrap: Forbidden"},
		{"enableSystemLogQuery: true", "enableSystemLogQuery: Forbidden"},
		{"featureGates: {PodLevelResourceManagers: true}", "featureGates[PodLevelResourceManagers]: Forbidden: islet does not have this feature"},
		{"featureGates: {AllAlpha: true}", "featureGates[AllAlpha]: Forbidden: islet does not have all alpha features"},
		{"featureGates: {NoSuchGate: false}", "featureGates[NoSuchGate]: Invalid value: false: Kubernetes 1.37 has no such feature gate"},
		{"featureGates: {NodeDeclaredFeatures: false}", "featureGates[NodeDeclaredFeatures]: Invalid value: false: the feature gate is locked to true"},
		{"featureGates: {GitRepoVolumeDriver: true}", "featureGates[GitRepoVolumeDriver]: Invalid value: true: the feature gate is locked to false"},
		{"featureGates: {AllBeta: false}\nshutdownGracePeriod: 10s", "shutdownGracePeriod: Forbidden"},
		{"enableSystemLogQuery: true", "enableSystemLogQuery: Forbidden: islet does not have it"},
		{"tracing: {endpoint: 'localhost:4317'}", "tracing.endpoint: Forbidden"},
		{"registerWithTaints: [{key: a, effect: Never}]", "registerWithTaints[0].effect: Unsupported value"},
		{"registerWithTaints: [{key: 'a b', effect: NoExecute}]", "registerWithTaints[0].key: Invalid value"},
		{"topologyManagerPolicy: x", "topologyManagerPolicy: Unsupported value"},
		{"topologyManagerScope: x", "topologyManagerScope: Unsupported value"},
		{"cpuManagerPolicy: dynamic", "cpuManagerPolicy: Unsupported value"},
		{"memoryManagerPolicy: none", "memoryManagerPolicy: Unsupported value"},
		{"shutdownGracePeriod: 500ms", "shutdownGracePeriod: Invalid value"},
		{"shutdownGracePeriodCriticalPods: 10s", "shutdownGracePeriodCriticalPods: Invalid value"},
		{"shutdownGracePeriod: 10s\nfeatureGates: {GracefulNodeShutdown: false}", "shutdownGracePeriod: Forbidden"},
		{"shutdownGracePeriod: 10s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]", "shutdownGracePeriodByPodPriority: Forbidden"},
		{"memorySwap: {swapBehavior: Unlimited}", "memorySwap.swapBehavior: Unsupported value"},
		{"crashLoopBackOff: {maxContainerRestartPeriod: 301s}", "crashLoopBackOff.maxContainerRestartPeriod: Invalid value"},
		{"crashLoopBackOff: {maxContainerRestartPeriod: 3s}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}", "crashLoopBackOff.maxContainerRestartPeriod: Forbidden"},
		{"enforceNodeAllocatable: [system-reserved]", "systemReservedCgroup: Required value"},
		{"enforceNodeAllocatable: [kube-reserved-compressible]", "kubeReservedCgroup: Required value"},
		{"enforceNodeAllocatable: [none, pods]", "none cannot be combined with other values"},
		{"enforceNodeAllocatable: [pods, pods]", "enforceNodeAllocatable[1]: Duplicate value"},
		{"enforceNodeAllocatable: [all]", "enforceNodeAllocatable[0]: Unsupported value"},
		{"enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /x", "exclude each other"},
		{"cgroupsPerQOS: false", "enforceNodeAllocatable: Forbidden"},
		{"cgroupsPerQOS: false\nenforceNodeAllocatable: [none]", "cgroupsPerQOS: Forbidden"},
		{"qosReserved: {memory: 50%}", "qosReserved: Forbidden: needs the feature gate QOSReserved"},
		{"hairpinMode: loop", "hairpinMode: Unsupported value"},
		{"imagePullCredentialsVerificationPolicy: Sometimes", "imagePullCredentialsVerificationPolicy: Unsupported value"},
		{"preloadedImagesVerificationAllowlist: [a]", "preloadedImagesVerificationAllowlist: Forbidden"},
		{"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['reg/x:tag']", "preloadedImagesVerificationAllowlist[0]: Invalid value"},
		{"imagePullCredentialsVerificationPolicy: NeverVerify\nfeatureGates: {KubeletEnsureSecretPulledImages: false}", "imagePullCredentialsVerificationPolicy: Forbidden"},
		{"reservedSystemCPUs: 3-1", "reservedSystemCPUs: Invalid value"},
		{"reservedSystemCPUs: '0'\nsystemReservedCgroup: /x", "reservedSystemCPUs: Forbidden"},
		{"reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]", "reservedMemory[0].limits[cpu]: Invalid value"},
		{"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 0, limits: {memory: 1Gi}}]", "reservedMemory[1].limits[memory]: Duplicate value"},
		{"systemReserved: {gpu: 1}", "wrong"},
		{"systemReserved: {gpu: '1'}", "systemReserved[gpu]: Invalid value"},
		{"kubeReserved: {cpu: '-1'}", "kubeReserved[cpu]: Invalid value"},
		{"qosReserved: {memory: '50'}", "qosReserved[memory]: Invalid value"},
		{"userNamespaces: {idsPerPod: 65537}", "userNamespaces.idsPerPod: Invalid value"},
		{"memoryThrottlingFactor: 0.5\nfeatureGates: {MemoryQoS: false}", "memoryThrottlingFactor: Forbidden: needs the feature gate MemoryQoS"},
		{"memoryThrottlingFactor: 1.1", "memoryThrottlingFactor: Invalid value"},
		{"memoryReservationPolicy: TieredReservation\nfeatureGates: {MemoryQoS: false}", "memoryReservationPolicy: Forbidden"},
		{"memoryReservationPolicy: Some", "memoryReservationPolicy: Unsupported value"},
		{"containerLogMaxFiles: 1", "containerLogMaxFiles: Invalid value"},
		{"containerLogMaxSize: big", "containerLogMaxSize: Invalid value"},
		{"containerLogMaxWorkers: 0", "containerLogMaxWorkers: Invalid value"},
		{"containerLogMonitorInterval: 1s", "containerLogMonitorInterval: Invalid value"},
		{"podLogsDir: /a/../b", "podLogsDir: Invalid value"},
		{"podLogsDir: /ä", "podLogsDir: Invalid value"},
		{"logging: {format: xml}", "logging.format: Unsupported value"},
		{"logging: {flushFrequency: -1s}", "logging.flushFrequency: Invalid value"},
		{"logging: {vmodule: [{filePattern: 'a=b', verbosity: 1}]}", "logging.vmodule[0]: Invalid value"},
		{"tracing: {endpoint: a, samplingRatePerMillion: 1}", "tracing.samplingRatePerMillion: Forbidden"},
		{"tracing: {samplingRatePerMillion: 1000001}", "tracing.samplingRatePerMillion: Invalid value"},
		{"tlsCipherSuites: [NONE]", "tlsCipherSuites: Invalid value"},
		{"tlsMinVersion: VersionTLS9", "tlsMinVersion: Invalid value"},
		{"tlsCertFile: /x", "tlsPrivateKeyFile: Required value"},
		{"clusterDNS: [dns]", "clusterDNS[0]: Invalid value"},
		{"clusterDomain: a_b", "clusterDomain: Invalid value"},
		{"staticPodURL: ftp://x", "staticPodURL: Invalid value"},
		{"containerRuntimeEndpoint: tcp://x", "containerRuntimeEndpoint: Invalid value"},
		{"podCIDR: x", "podCIDR: Invalid value"},
	} {
		dir := writeFiles(t, map[string]string{"c.yaml": kubeletHead + c.text})
		_, _, err := Load([]string{"--hostname-override=n", "--config=" + filepath.Join(dir, "c.yaml")})
		if c.want == "wrong" { // the error for a wrong type contains the line
			c.want = "c.yaml:3: "
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %q", c.text, err, c.want)
		}
	}
}

func TestValidationAccepts(t *testing.T) {
	for _, text := range []string{
		"evictionHard: {memory.available: 0%, nodefs.available: 100%, pid.available: 1k}",
		"evictionMinimumReclaim: {memory.available: '0'}",
		"enforceNodeAllocatable: [none]",
		"resolvConf: ''",
		"shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s",
		"containerRuntimeEndpoint: unix:///run/containerd/containerd.sock",
		"containerRuntimeEndpoint: /run/crio/crio.sock",
		"featureGates: {KubeletCrashLoopBackOffMax: false, KubeletEnsureSecretPulledImages: false}",
		"featureGates: {AllAlpha: false, AllBeta: true, GracefulNodeShutdown: true, PodsAPI: false, NodeDeclaredFeatures: true}",
		"tracing: {samplingRatePerMillion: 0, endpoint: a}",
		"reservedSystemCPUs: 0,2-3",
		"tlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_AES_128_GCM_SHA256]",
		"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['reg:5000/x', 'reg/*']",
		"maxParallelImagePulls: 3",
		"nodeStatusUpdateFrequency: 20s",
		"mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 5%}",
		"podPidsLimit: -5",
		"showHiddenMetricsForVersion: '1.36'",
	} {
		dir := writeFiles(t, map[string]string{"c.yaml": kubeletHead + text})
		if _, _, err := Load([]string{"--hostname-override=n", "--config=" + filepath.Join(dir, "c.yaml")}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCheckHost(t *testing.T) {
	swapping := fstest.MapFS{
		"proc/swaps":                       {Data: []byte("Filename\tType\n/dev/zram0 partition 1 0 100\n")},
		"proc/sys/vm/overcommit_memory":    {Data: []byte("0\n")},
		"sys/fs/cgroup/cgroup.controllers": {},
		"proc/sys/kernel/panic":            {Data: []byte("10\n")},
	}
	v1 := fstest.MapFS{"proc/swaps": {Data: []byte("Filename\tType\n")}}
	refusing := filepath.Join(writeFiles(t, map[string]string{"swap.conf": kubeletHead + "failSwapOn: true"}), "swap.conf")
	for _, c := range []struct {
		name string
		host fstest.MapFS
		args []string
		want string
	}{
		{"swap", swapping, []string{"--kubeconfig=/k"}, "failSwapOn: Invalid value: true: swap is on (/dev/zram0)"},
		{"swap, joining", swapping, []string{"--kubeconfig=/k", "--bootstrap-kubeconfig=/b"}, "failSwapOn: Invalid value: true: swap is on (/dev/zram0)"},
		{"swap refused", swapping, []string{"--fail-swap-on"}, "failSwapOn: Invalid value: true: swap is on (/dev/zram0)"},
		{"swap refused by a file", swapping, []string{"--config=" + refusing}, "failSwapOn: Invalid value: true: swap is on (/dev/zram0)"},
		{"swap refused by a drop-in", swapping, []string{"--config-dir=" + filepath.Dir(refusing)}, "failSwapOn: Invalid value: true: swap is on (/dev/zram0)"},
		{"swap on a node that stands alone", swapping, nil, ""},
		{"swap allowed", swapping, []string{"--fail-swap-on=false"}, ""},
		{"kernel", swapping, []string{"--fail-swap-on=false", "--protect-kernel-defaults"}, "vm.overcommit_memory is 0: set it with sysctl -w vm.overcommit_memory=1"},
		{"v1", v1, nil, ""},
		{"v1 forbidden", v1, []string{"--fail-cgroupv1"}, "failCgroupV1: Invalid value: true"},
		{"nothing readable", fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": {}}, []string{"--protect-kernel-defaults", "--fail-cgroupv1"}, ""},
	} {
		cfg, _ := mustLoad(t, c.args...)
		err := errors.Join(cfg.CheckHost(c.host)...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestSwapUnasked checks that swap on the host causes a warning if failSwapOn is not set.
func TestSwapUnasked(t *testing.T) {
	swapping := fstest.MapFS{"proc/swaps": {Data: []byte("Filename\tType\n/var/swap file 1 0 100\n")}}
	for _, c := range []struct {
		host fstest.MapFS
		args []string
		want int
	}{
		{swapping, nil, 1},
		{fstest.MapFS{"proc/swaps": {Data: []byte("Filename\tType\n")}}, nil, 0},
		{fstest.MapFS{}, nil, 0},
		{swapping, []string{"--fail-swap-on=false"}, 0},
		{swapping, []string{"--fail-swap-on"}, 0},
		{swapping, []string{"--kubeconfig=/k"}, 0},
	} {
		cfg, _ := mustLoad(t, c.args...)
		got := cfg.HostWarnings(c.host)
		if len(got) != c.want || c.want > 0 && !strings.Contains(got[0], "swap is on (/var/swap)") {
			t.Errorf("%q: %q", c.args, got)
		}
	}
}

// TestOldKernel checks that a throttling factor causes a warning on an old kernel with cgroup v2. Such a kernel handles memory.high badly.
func TestOldKernel(t *testing.T) {
	const v2, release = "sys/fs/cgroup/cgroup.controllers", "proc/sys/kernel/osrelease"
	for i, c := range []struct {
		host fstest.MapFS
		yaml string
		want int
	}{
		{fstest.MapFS{v2: {}, release: {Data: []byte("5.4.0-150-generic\n")}}, "memoryThrottlingFactor: 0.9", 1},
		{fstest.MapFS{v2: {}, release: {Data: []byte("4.19.0\n")}}, "memoryThrottlingFactor: 0.9", 1},
		{fstest.MapFS{v2: {}, release: {Data: []byte("5.10.0\n")}}, "memoryThrottlingFactor: 0.9", 0},
		{fstest.MapFS{v2: {}, release: {Data: []byte("6.1.0\n")}}, "memoryThrottlingFactor: 0.9", 0},
		{fstest.MapFS{v2: {}, release: {Data: []byte("5.4.0\n")}}, "", 0},
		{fstest.MapFS{v2: {}, release: {Data: []byte("5.4.0\n")}}, "memoryThrottlingFactor: 0.9\nfeatureGates: {MemoryQoS: false}", 0},
		{fstest.MapFS{release: {Data: []byte("5.4.0\n")}}, "memoryThrottlingFactor: 0.9", 0}, // cgroup v1
		{fstest.MapFS{v2: {}, release: {Data: []byte("?")}}, "memoryThrottlingFactor: 0.9", 0},
		{fstest.MapFS{v2: {}}, "memoryThrottlingFactor: 0.9", 0},
	} {
		dir := writeFiles(t, map[string]string{"c.yaml": kubeletHead + c.yaml})
		cfg, _ := mustLoad(t, "--config="+filepath.Join(dir, "c.yaml"))
		if got := cfg.HostWarnings(c.host); len(got) != c.want {
			t.Errorf("%d: %q", i, got)
		}
	}
}

// TestFlexVolume checks that a warning lists the first FlexVolume drivers. Other files in the directory must have no effect.
func TestFlexVolume(t *testing.T) {
	program := &fstest.MapFile{Mode: 0o755}
	many := fstest.MapFS{}
	for i := range 100 {
		many[fmt.Sprintf("d/v~%d%s/%d%s", i, strings.Repeat("x", 200), i, strings.Repeat("x", 200))] = program
	}
	for i, c := range []struct {
		host fstest.MapFS
		want string
	}{
		{fstest.MapFS{"d/nodeagent~uds/uds": program, "d/alone/alone": program, "d/vendor~text/text": {Mode: 0o644}, "d/vendor~other/program": program, "d/file": program, "d/x~y/y/z": program}, "(alone, nodeagent/uds)"},
		{fstest.MapFS{"d/file": program}, ""},
		{fstest.MapFS{"d": program}, ""},
		{fstest.MapFS{}, ""},
		{many, "v/0xxx"},
	} {
		cfg, _ := mustLoad(t, "--volume-plugin-dir=/d/")
		got := strings.Join(cfg.HostWarnings(c.host), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) || len(got) > 700 {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

func TestKillsWholeContainers(t *testing.T) {
	v2 := fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": {Data: []byte("cpuset cpu io memory pids\n")}}
	noMemory := fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": {Data: []byte("cpu pids\n")}} // the default of a Raspberry Pi
	for _, c := range []struct {
		host   fstest.MapFS
		single string
		want   bool
	}{{v2, "", true}, {v2, "singleProcessOOMKill: true", false}, {v2, "singleProcessOOMKill: false", true}, {noMemory, "", false}, {fstest.MapFS{}, "", false}} {
		dir := writeFiles(t, map[string]string{"c.yaml": kubeletHead + c.single})
		cfg, _ := mustLoad(t, "--config="+filepath.Join(dir, "c.yaml"))
		if got := cfg.KillsWholeContainers(c.host); got != c.want {
			t.Errorf("%v %q: %v", c.host, c.single, got)
		}
	}
}

func TestSwapCgroup(t *testing.T) {
	v2 := fstest.MapFS{"proc/self/cgroup": {Data: []byte("0::/system.slice/islet.service\n")}, "sys/fs/cgroup/system.slice/islet.service/memory.swap.max": {}}
	v1 := fstest.MapFS{"proc/self/cgroup": {Data: []byte("4:memory:/\n0::/\n")}, "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": {}}
	uncounted := fstest.MapFS{"proc/self/cgroup": {Data: []byte("0::/islet\n")}, "sys/fs/cgroup/islet/memory.max": {}}
	for i, host := range []fstest.MapFS{uncounted, v1, v2} {
		if got := SwapCgroup(host); got != i {
			t.Errorf("host %d: version %d", i, got)
		}
	}
}

// TestFeatures checks that each feature gate is reported once, with its configured value or the default of Kubernetes.
func TestFeatures(t *testing.T) {
	c := &Config{}
	c.Kubelet.FeatureGates = map[string]bool{gateMemoryQoS: true, gateShutdown: false}
	got := map[string]string{}
	c.VisitFeatures(func(name, stage string, on bool) {
		if _, twice := got[name]; twice {
			t.Errorf("%s twice", name)
		}
		got[name] = fmt.Sprintf("%s %v", stage, on)
	})
	for name, want := range map[string]string{gateMemoryQoS: "BETA true", gatePodLevelManagers: "BETA false", gateShutdown: "BETA false", gateCrashLoop: "BETA true", gateQuotaPeriod: " true"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

// TestBundleSettings checks the keys and the durations of bundles.
func TestBundleSettings(t *testing.T) {
	a := release.Key(make([]byte, 32)).String()
	for _, c := range []struct{ text, want string }{
		{fmt.Sprintf("keys: [%s], healthyFor: 2s, deadline: 10s", a), ""},
		{fmt.Sprintf("keys: [%s], threshold: 2", a), "bundle.threshold: Invalid value: 2: must be between 1 and the number of different keys, 1"},
		{"keys: [mine]", `bundle.keys[0]: Invalid value: "mine"`},
		{"healthyFor: -1s", "bundle.healthyFor: Invalid value"},
		{"healthyFor: 10s, deadline: 10s", "bundle.deadline: Invalid value"},
		{"deadline: 2h", "bundle.deadline: Invalid value"},
		{"source: 'https://example.com/k.tar'", "needs bundle.keys"},
		{fmt.Sprintf("keys: [%s], source: 'http://user:secret@example.com/k.tar'", a), "must be an https URL, or begin with oci://"},
		{fmt.Sprintf("keys: [%s], source: /media/stick", a), "must be an https URL, or begin with oci://"},
		{fmt.Sprintf("keys: [%s], source: 'https://user:secret@%%zz/'", a), "is not a valid URL"},
		{fmt.Sprintf("keys: [%s], source: 'oci://kiosk:42'", a), "must be a complete reference"},
		{fmt.Sprintf("keys: [%s], source: 'oci://registry.example.com/kiosk'", a), "must be a complete reference"},
		{"every: 1s", "bundle.every: Invalid value"},
		{"every: 1000h", "bundle.every: Invalid value"},
		{"report: 'http://user:secret@example.com/?token=secret'",
			"bundle.report: Invalid value: \"http://example.com/\": must be an https URL, or an http URL of this machine: localhost,"},
		{"report: 'https:user:secret@example.com/'", "bundle.report: Invalid value: \"https:...\": must be an https URL"},
		{"report: 'https:/user:secret@example.com/'", "bundle.report: Invalid value: \"https:...\": must be an https URL"},
		{fmt.Sprintf("keys: [%s], source: 'oci://user:secret@example.com/k:1'", a), "bundle.source: Invalid value: \"oci://...\": must be"},
		{"report: 'oci://example.com/kiosk:42'", "must be an https URL"},
		{"medium: {label: ISLET}", "bundle.keys: Required value"},
		{fmt.Sprintf("keys: [%s], medium: {label: islet}", a), `bundle.medium.label: Invalid value: "islet"`},
		{fmt.Sprintf("keys: [%s], medium: {label: ISLETISLETIS}", a), "bundle.medium.label: Invalid value"},
		{"medium: {result: true}", "bundle.medium.label: Required value"},
		{fmt.Sprintf("keys: [%s], medium: {label: ISLET, led: ../act}", a), "bundle.medium.led: Invalid value"},
	} {
		dir := writeFiles(t, map[string]string{"edge.yaml": edgeDocHead + "bundle: {" + c.text + "}\n"})
		_, _, err := Load([]string{"--hostname-override=n", "--edge-config=" + filepath.Join(dir, "edge.yaml")})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}

// TestUpdateKeys checks that the number of different keys must be at least the number of required signatures. A repeated key counts once.
func TestUpdateKeys(t *testing.T) {
	a, b := release.Key(make([]byte, 32)).String(), release.Key(slices.Repeat([]byte{1}, 32)).String()
	for _, c := range []struct{ text, want string }{
		{fmt.Sprintf("keys: [%s]", a), ""},
		{fmt.Sprintf("keys: [%s, %s], threshold: 2", a, b), ""},
		{fmt.Sprintf("keys: [%s, %s]", a, a), ""},
		{fmt.Sprintf("keys: [%s, ' %s'], threshold: 2", a, a), "update.threshold: Invalid value: 2: must be between 1 and the number of different keys, 1"},
		{fmt.Sprintf("keys: [%s], threshold: -1", a), "update.threshold: Invalid value: -1"},
		{"keys: [mine]", `update.keys[0]: Invalid value: "mine"`},
		{"archive: /a", "update.keys: Required value"},
		{"index: /a", "update.keys: Required value"},
		{fmt.Sprintf("keys: [%s], index: /a, indexKeys: [%s]", a, b), ""},
		{fmt.Sprintf("keys: [%s], index: 'https://example.com/islet.index'", a), ""},
		{fmt.Sprintf("keys: [%s], index: 'http://example.com/islet.index'", a), `update.index: Invalid value: "http://example.com/islet.index"`},
		{fmt.Sprintf("keys: [%s], index: /a, archive: /b", a), `update.index: Invalid value: "/a": cannot be set together with archive`},
		{fmt.Sprintf("keys: [%s], index: /a, indexKeys: [mine]", a), `update.indexKeys[0]: Invalid value: "mine"`},
	} {
		dir := writeFiles(t, map[string]string{"edge.yaml": edgeDocHead + "update: {" + c.text + "}\n"})
		_, _, err := Load([]string{"--hostname-override=n", "--edge-config=" + filepath.Join(dir, "edge.yaml")})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
