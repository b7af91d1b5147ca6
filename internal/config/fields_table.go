package config

import "strings"

// A fieldRow describes one field of settings and its effect. For a field without effect, the member none contains the
// reason. For other fields it is empty.
type fieldRow struct{ path, what, none string }

// These reasons apply to several fields.
const (
	noRotation = "only with podLogQuota of the EdgeConfiguration or with an external runtime; otherwise the shims " +
		"of islet's own runtime rotate the logs that they write"
	pacedReason = "minimum time between two rotations of a log, see [logs](resources.md#logs); with podLogQuota of " +
		"the EdgeConfiguration or an external runtime also the period of checking log sizes. A removed pod's logs stay for this time"
	asKubelet = "it has none in a kubelet either"
)

// kubeletFields describes the fields of KubeletConfiguration, in the order of that type.
func kubeletFields() []fieldRow {
	return []fieldRow{
		{"enableServer", "serve the kubelet API", ""},
		{"staticPodPath", "directory or file of static pods", ""},
		{"podLogsDir", "directory of pod logs; with a non-default --state-dir, pod-logs in it", ""},
		{"syncFrequency", "period of polling: claims of CSI volumes are read, and volumes with requiresRepublish " +
			"are published again, every 1 to 1.6 periods; all containers are listed every five periods, in case an " +
			"event was lost. Everything else is triggered by events and its own timers", ""},
		{"fileCheckFrequency", "period of checking staticPodPath, in addition to file events; up to three times as long, " +
			"at most 1 min, while inotify reports all changes", ""},
		{"httpCheckFrequency", "period of fetching staticPodURL", ""},
		{"staticPodURL", "URL of static pods", ""},
		{"staticPodURLHeader", "HTTP headers of requests for staticPodURL", ""},
		{"address", "address that the kubelet API listens on", ""},
		{"port", "port of the kubelet API", ""},
		{"readOnlyPort", "port of the read-only API without authentication; 0: none", ""},
		{"tlsCertFile", "serving certificate", ""},
		{"tlsPrivateKeyFile", "key of the serving certificate", ""},
		{"tlsCipherSuites", "cipher suites for TLS 1.2, by Go's names; empty: the suites of the CIS benchmark", ""},
		{"tlsCurvePreferences", "key exchanges, by Go's numbers", ""},
		{"tlsMinVersion", "oldest TLS version", ""},
		{"rotateCertificates", "renew the client certificate before it expires", ""},
		{"serverTLSBootstrap", "have the serving certificate signed by the cluster", ""},
		{"authentication.x509.clientCAFile", "file of certificate authorities that sign client certificates", ""},
		{"authentication.webhook.enabled", "authenticate bearer tokens by TokenReview", ""},
		{"authentication.webhook.cacheTTL", "how long a TokenReview is cached", ""},
		{"authentication.anonymous.enabled", "pass requests without credentials on to authorization", ""},
		{"authorization.mode", "AlwaysAllow, or Webhook: by SubjectAccessReview", ""},
		{"authorization.webhook.cacheAuthorizedTTL", "how long a permission is cached", ""},
		{"authorization.webhook.cacheUnauthorizedTTL", "how long a refusal is cached", ""},
		{"registryPullQPS", "image pulls per second, more have to wait; 0: no limit. With islet's own runtime only " +
			"pulls that download something count", ""},
		{"registryBurst", "burst of image pulls", ""},
		{"imagePullCredentialsVerificationPolicy", "when a pod must prove that it may use an image that is already " +
			"on the node, with the credentials that pulled it or at the registry: NeverVerify, " +
			"NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify", ""},
		{"preloadedImagesVerificationAllowlist", "images (or registry/path/*) that every pod may use, with " +
			"NeverVerifyAllowlistedImages", ""},
		{"eventRecordQPS", "events per second; 0: no limit", ""},
		{"eventBurst", "burst of events", ""},
		{"enableDebuggingHandlers", "serve /runningpods, /containerLogs, /exec, /attach, /portForward, /run, " +
			"/configz, /logs and profiles on port, in addition to metrics and pods", ""},
		{"enableContentionProfiling", "profile lock contention", ""},
		{"healthzPort", "port of healthz; 0: none", ""},
		{"healthzBindAddress", "address of healthz", ""},
		{"oomScoreAdj", "oom_score_adj of islet's process, if the kernel allows it", ""},
		{"clusterDomain", "DNS domain of the cluster, a search domain of pods", ""},
		{"clusterDNS", "DNS servers of pods", ""},
		{"streamingConnectionIdleTimeout", "idle timeout of exec, attach and port-forward streams", ""},
		{"nodeStatusUpdateFrequency", "period of computing the node's status", ""},
		{"nodeStatusReportFrequency", "period of reporting an unchanged status", ""},
		{"nodeLeaseDurationSeconds", "duration of the node's Lease", ""},
		{"imageMinimumGCAge", "minimum age at which an unused image is removed", ""},
		{"imageMaximumGCAge", "age at which an unused image is always removed; 0: never", ""},
		{"imageGCHighThresholdPercent", "disk use that starts image collection", ""},
		{"imageGCLowThresholdPercent", "disk use that ends image collection", ""},
		{"volumeStatsAggPeriod", "maximum age of the measured size of a volume or log directory; negative: sizes are not measured", ""},
		{"kubeletCgroups", "cgroup that islet's process moves itself to at its start; empty: it stays in the " +
			"cgroup of the service manager", ""},
		{"systemCgroups", "cgroup for processes that are directly in cgroupRoot, except kernel threads and process " +
			"1; islet moves them at its start and once a minute. Requires cgroupRoot", ""},
		{"cgroupRoot", "parent cgroup of kubepods; with a non-default --state-dir, a cgroup of its own", ""},
		{"cgroupsPerQOS", "one cgroup per QoS class; only true is supported, because islet isolates, measures and " +
			"kills pods by their cgroups", ""},
		{"cgroupDriver", "cgroupfs or systemd", ""},
		{"cpuManagerPolicy", "none or static: guaranteed pods with a whole number of CPUs get exclusive CPUs, see " +
			"[CPU, memory and topology managers](resources.md#cpu-memory-and-topology-managers)", ""},
		{"singleProcessOOMKill", "on cgroup v2, kill only one process of a container when memory runs out", ""},
		{"cpuManagerPolicyOptions", "options of the CPU manager", ""},
		{"cpuManagerReconcilePeriod", "longest time between two checks of the CPUs of running containers, with the policy static", ""},
		{"memoryManagerPolicy", "None or Static", ""},
		{"topologyManagerPolicy", "none, best-effort, restricted or single-numa-node", ""},
		{"topologyManagerScope", "container or pod", ""},
		{"topologyManagerPolicyOptions", "options of the topology manager", ""},
		{"qosReserved", "share of the memory requested by pods that pods of lower QoS classes cannot use; with the " +
			"feature gate QOSReserved", ""},
		{"runtimeRequestTimeout", "timeout of calls to the runtime at containerRuntimeEndpoint; islet's own " +
			"runtime has a timeout for each kind of call", ""},
		{"hairpinMode", "how a pod reaches itself through a Service; none disables it", ""},
		{"maxPods", "maximum number of pods", ""},
		{"podCIDR", "pod network, or one of each IP family, until a control plane assigns one", ""},
		{"podPidsLimit", "maximum number of process IDs of a pod; -1: half of the number for all pods, which is 90 " +
			"% of the kernel's limit", ""},
		{"resolvConf", "file from which pods' DNS configuration is derived; empty: none", ""},
		{"runOnce", "rejected if true: kubelets no longer have this mode", ""},
		{"cpuCFSQuota", "enforce CPU limits", ""},
		{"cpuCFSQuotaPeriod", "period of CPU quotas", ""},
		{"nodeStatusMaxImages", "maximum number of images in the node's status; -1: all", ""},
		{"maxOpenFiles", "limit of open files of islet's process, if the kernel allows it", ""},
		{"contentType", "encoding of requests to the API server and of its responses: " +
			"application/vnd.kubernetes.protobuf, or application/json, which is several times larger", ""},
		{"kubeAPIQPS", "requests per second to the API server; deleting a terminated pod and its last status count as one", ""},
		{"kubeAPIBurst", "burst of requests to the API server", ""},
		{"serializeImagePulls", "pull one image at a time", ""},
		{"maxParallelImagePulls", "maximum number of images pulled at a time", ""},
		{"evictionHard", "thresholds at which pods are evicted immediately: see [eviction](resources.md#eviction)", ""},
		{"evictionSoft", "thresholds at which pods are evicted after evictionSoftGracePeriod", ""},
		{"evictionSoftGracePeriod", "grace periods of evictionSoft", ""},
		{"evictionPressureTransitionPeriod", "how long a pressure condition stays after the pressure", ""},
		{"evictionMaxPodGracePeriod", "maximum grace period of a pod in a soft eviction, in seconds", ""},
		{"evictionMinimumReclaim", "minimum amount that an eviction frees", ""},
		{"mergeDefaultEvictionSettings", "add the default thresholds to evictionHard", ""},
		{"podsPerCore", "maximum number of pods per CPU; 0: no limit", ""},
		{"enableControllerAttachDetach", "leave attaching volumes to the controller manager", ""},
		{"protectKernelDefaults", "refuse to start if kernel parameters differ from a kubelet's, instead of setting them: see " +
			"[kernel parameters](from-kubelet.md#kernel-parameters)", ""},
		{"makeIPTablesUtilChains", "keep the chain KUBE-IPTABLES-HINT, from which pods detect the host's " +
			"iptables variant; not on a host without iptables", ""},
		{"iptablesMasqueradeBit", "mark of packets to masquerade", asKubelet},
		{"iptablesDropBit", "mark of packets to drop", asKubelet},
		{"featureGates", "feature gates by name. Those with an effect are " + strings.Join(supportedGates(), ", ") +
			" and, for the beta ones, AllBeta. Rejected are gates that Kubernetes " + KubernetesMinor +
			" does not have, other values of locked gates, and alpha gates whose feature islet does not have",
			"the feature of any other gate is either always or never in islet"},
		{"failSwapOn", "refuse to start if swap is on. If it is not set, a node without a control plane starts with a warning", ""},
		{"memorySwap.swapBehavior", "NoSwap, or LimitedSwap on cgroup v2: see [swap](resources.md#swap)", ""},
		{"containerLogMaxSize", "size at which a container's log is rotated, at most once per containerLogMonitorInterval", ""},
		{"containerLogMaxFiles", "log files kept per container", ""},
		{"containerLogMaxWorkers", "maximum number of logs that the agent rotates at a time, " + noRotation, ""},
		{"containerLogMonitorInterval", pacedReason, ""},
		{"configMapAndSecretChangeDetectionStrategy", "Watch, Cache or Get", ""},
		{"systemReserved", "resources reserved for the system: see [allocatable](resources.md#allocatable)", ""},
		{"kubeReserved", "resources reserved for islet", ""},
		{"reservedSystemCPUs", "CPUs reserved for the system and islet", ""},
		{"showHiddenMetricsForVersion", "version whose hidden metrics are shown; only the previous version is " +
			"accepted, and islet hides no metrics", ""},
		{"systemReservedCgroup", "cgroup on which systemReserved is enforced", ""},
		{"kubeReservedCgroup", "cgroup on which kubeReserved is enforced", ""},
		{"enforceNodeAllocatable", "which limits are enforced: pods, system-reserved, kube-reserved (each of the " +
			"latter two with -compressible), or none", ""},
		{"allowedUnsafeSysctls", "unsafe sysctls that pods may set", ""},
		{"defaultPodSysctls", "sysctls that every pod gets in its own namespaces, unless the pod sets them itself; " +
			"needs the feature gate DefaultPodSysctls", ""},
		{"volumePluginDir", "directory of FlexVolume drivers, which islet does not support: it warns at its start " +
			"if there are any, and pods that need one do not start", ""},
		{"providerID", "the machine's ID at its cloud provider", ""},
		{"kernelMemcgNotification", "let the kernel report memory pressure", "the kernel reports it even if this " +
			"is false, because thresholds are polled too rarely"},
		{"logging.format", "text or json", ""},
		{"logging.flushFrequency", "maximum delay of a log line; islet does not delay any", ""},
		{"logging.verbosity", "log verbosity; 4 and more: debugging", ""},
		{"logging.vmodule", "verbosity of log lines by source file: a pattern matches the file's name without .go, " +
			"or its path if the pattern contains a slash; with the format text", ""},
		{"logging.options", "splitStream of text or json: lines that are not errors go to standard output; with " +
			"the feature gate LoggingAlphaOptions. An infoBufferSize other than 0 is rejected, because log lines " +
			"are not buffered", ""},
		{"enableSystemLogHandler", "serve the host's /var/log", ""},
		{"enableSystemLogQuery", "rejected if true: islet does not have it; /logs/ serves the host's log files", ""},
		{"shutdownGracePeriod", "how long pods may take to terminate, by priority, when the machine shuts down: " +
			"see [the life of a pod](pod-life.md#when-the-machine-goes-off); 0s: pods are not terminated before " +
			"the shutdown", ""},
		{"shutdownGracePeriodCriticalPods", "the part of it for critical pods, which are terminated last", ""},
		{"shutdownGracePeriodByPodPriority", "shutdown grace periods by ranges of priority; instead of shutdownGracePeriod", ""},
		{"crashLoopBackOff.maxContainerRestartPeriod", "longest restart back-off of a crashing container", ""},
		{"reservedMemory", "memory reserved per NUMA node, for the memory manager", ""},
		{"enableProfilingHandler", "serve /debug/pprof", ""},
		{"enableDebugFlagsHandler", "serve /debug/flags/v, which sets the log level", ""},
		{"seccompDefault", "use RuntimeDefault for pods that set no seccomp profile", ""},
		{"memoryThrottlingFactor", "fraction of the memory limit at which memory is throttled, on cgroup v2 with " +
			"the feature gate MemoryQoS", ""},
		{"memoryReservationPolicy", "None or TieredReservation: requested memory is protected for its pods, on cgroup v2", ""},
		{"registerWithTaints", "taints of a node that registers itself", ""},
		{"registerNode", "create the Node object", ""},
		{"tracing", "OpenTelemetry tracing, which islet does not have: a samplingRatePerMillion above 0, and an " +
			"endpoint without samplingRatePerMillion, are rejected", ""},
		{"localStorageCapacityIsolation", "count ephemeral storage as a resource", ""},
		{"containerRuntimeEndpoint", "CRI socket of the runtime that runs the containers, such as " +
			"unix:///run/containerd/containerd.sock; empty: islet's own runtime. A path in --run-dir, such as " +
			"unix:///run/islet/cri.sock, is the socket at which islet serves its own runtime", ""},
		{"imageServiceEndpoint", "CRI socket of the image service, for a containerRuntimeEndpoint outside " +
			"--run-dir; empty: the socket of the runtime", ""},
		{"failCgroupV1", "refuse to start on cgroup v1", ""},
		{"userNamespaces.idsPerPod", "number of user IDs of a pod with a user namespace", ""},
	}
}

// edgeFields describes the fields of EdgeConfiguration.
func edgeFields() []fieldRow {
	return []fieldRow{
		{"edge.shimPods", "number of pods that share one shim process, and restart when it dies; 1: each pod has its own", ""},
		{"edge.ociRuntime", "name or path of the OCI runtime; empty: the one that is shipped with islet if it " +
			"works, else crun, else runc", ""},
		{"edge.runtimeHandlers", "runtimes for RuntimeClasses. Each has the name of the handler, and the name or " +
			"path of a program: ociRuntime, or shim for a containerd shim (with shimConfig, its configuration " +
			"file)", ""},
		{"edge.bridgeName", "interface of the built-in network", ""},
		{"edge.networkPlugin", "auto: a CNI configuration if there is one, also one that appears later, else the " +
			"built-in network; cni: a CNI configuration only; built-in: CNI configurations are ignored", ""},
		{"edge.cniConfDir", "directory of CNI configurations; the first one replaces the built-in network", ""},
		{"edge.cniBinDirs", "directories of CNI plugins", ""},
		{"edge.registryConfigDir", "directory with a hosts.toml per registry: mirrors, certificates, plain HTTP", ""},
		{"edge.imagesDir", "directory from which image archives are imported; empty: images in the state directory", ""},
		{"edge.criSocket", "socket at which islet serves CRI, for crictl and kubeadm; empty: " +
			"containerRuntimeEndpoint if that is in --run-dir, else none", ""},
		{"edge.holdPodsFor", "how long pods continue to run that the API server has lost (after a restore from a " +
			"backup, in a re-created cluster, or when the Node was deleted), or whose cluster the configuration has " +
			"lost; 0s: until `islet accept`", ""},
		{"edge.statusPagePort", "port on 127.0.0.1 of the [status page](status-page.md); with it, port 10250 also " +
			"serves the page, at /page/; 0: none", ""},
		{"edge.podLogQuota", "limit of the logs of all containers of a pod together, in bytes, such as 20Mi: " +
			"beyond it the oldest rotated files are removed. See [logs](resources.md#logs)", ""},
		{"edge.flashBudget", "bytes that the node's software and its pods may write to the disk per day, such as " +
			"500Mi: beyond it islet warns and delays work that can wait. See [flash](resources.md#flash)", ""},
		{"edge.devices", "devices of the host that containers request as a resource: see " +
			"[devices](devices.md#built-in-devices). Each has resource (such as islet.dev/serial) and match: a " +
			"list of paths, usb (vendor, product, serial), driver, subsystem and attributes. Optional are unit, " +
			"permissions, group, containerPath and shared", ""},
		{"edge.realTime.pods", "pods that may use real-time scheduling by annotations: see [real time](real-time.md). Each " +
			"element has namespaces and sources (file, http, api, local, bundle). Optional are names, policies (OTHER, BATCH, " +
			"FIFO, RR, DEADLINE), maxPriority, minNice, ioClasses (realtime, best-effort, idle), maxLockedMemory and " +
			"isolatedCPUs. Empty: no pod may", ""},
		{"edge.realTime.bandwidth", "maximum CPU time of all pods with real-time scheduling together, in percent of one CPU. " +
			"DEADLINE counts with its runtime per period. FIFO and RR count with the container's CPU limit if the kernel " +
			"has real-time budgets for cgroups", ""},
		{"edge.realTime.busyLimit", "maximum CPU time for which a thread with FIFO or RR may run without a blocking system " +
			"call; beyond it the kernel kills the process", ""},
		{"edge.realTime.allowUnthrottled", "permits FIFO and RR while kernel.sched_rt_runtime_us is -1, so that such a thread " +
			"may take all time of a CPU", ""},
		{"edge.configuration.configMap", "ConfigMap that the node follows, as namespace/name or a name in " +
			"kube-system: its key kubelet is a KubeletConfiguration, its key edge an EdgeConfiguration. Empty: the " +
			"one in the Node's annotation islet.dev/config-map, if any. See [configuration that is " +
			"sent](sent-configuration.md)", ""},
		{"edge.configuration.healthyFor", "how long a node must be continuously as healthy as before until it " +
			"keeps a configuration that it was sent", ""},
		{"edge.configuration.deadline", "maximum duration of a trial: a configuration that has not been healthy " +
			"for healthyFor by then has failed", ""},
		{"edge.configuration.consent", "[fields that belong to the node](#what-a-node-keeps-as-its-own) and that a " +
			"sent configuration may change nevertheless", ""},
		{"edge.update.keys", "public keys of the signers whose archives of islet this node accepts, as " +
			"islet-ed25519 BASE64; empty: it accepts none. See [updates](updates.md)", ""},
		{"edge.update.threshold", "how many of the keys must have signed an archive", ""},
		{"edge.update.archive", "absolute path or https URL of an archive that the node follows: a newer version " +
			"there is tried, and kept if the trial succeeds", ""},
		{"edge.update.index", "absolute path or https URL of the index of a staged rollout, which the node follows instead of an " +
			"archive: it tries a newer version when its ring is open. See [staged rollout](rollout.md)", ""},
		{"edge.update.indexKeys", "public keys of the signers of that index, of whom one is enough; empty: keys and threshold apply to " +
			"the index too", ""},
		{"edge.update.every", "period of checking that archive's release, or that index", ""},
		{"edge.bundle.keys", "public keys of the signers whose bundles this node accepts, as " +
			"islet-ed25519 BASE64; empty: the node accepts no bundle. See [bundles](bundles.md#on-the-node)", ""},
		{"edge.bundle.threshold", "how many of the keys must have signed a bundle", ""},
		{"edge.bundle.source", "https URL of a tar, https URL of a directory with a slash at the end, or oci:// and a reference in a " +
			"registry: the node tries the bundle there if its number is greater than before. See " +
			"[bundles](bundles.md#a-followed-source)", ""},
		{"edge.bundle.every", "period of checking that bundle", ""},
		{"edge.bundle.report", "https URL to which the node sends its signed state with POST: once, and whenever a bundle's trial, or " +
			"with update.index also one of islet, has begun or ended. See [bundles](bundles.md#reports)", ""},
		{"edge.bundle.healthyFor", "how long the pods must be Ready without interruption before the node keeps a new bundle", ""},
		{"edge.bundle.deadline", "maximum duration of a bundle's trial: if the pods have not been Ready for healthyFor by then, the " +
			"node returns to the previous bundle", ""},
		{"edge.bundle.medium.label", "label of the file systems (vfat, exfat, ext4, iso9660) that the node mounts read-only to look " +
			"for bundles, such as ISLET; empty: the node mounts no stick. See [bundles](bundles-field.md)", ""},
		{"edge.bundle.medium.result", "whether the node writes its state to the stick, as islet-NODE.json", ""},
		{"edge.bundle.medium.led", "name of an LED in /sys/class/leds: it blinks while the node needs the stick, is on when the bundle " +
			"is in use, and beats when it is not; empty: none", ""},
		{"edge.tpm.device", "the TPM 2.0 that opens a [sealed key](sealed-key.md): a device, or the unix socket of an " +
			"emulator. Unused if the key is not sealed", ""},
		{"edge.tpm.policies", "directory with the signatures of policies, for a key that was sealed with `--policy-key`. " +
			"See [sealed key](sealed-key.md#updates)", ""},
		{"edge.k3s.directory", "directory that `islet join --k3s` has written: the node renews its certificates there, keeps a tunnel to " +
			"each k3s server, and uses the kubeconfig there unless --kubeconfig or --bootstrap-kubeconfig is given. Empty: none of this. " +
			"See [from k3s](from-k3s.md)", ""},
	}
}

// optionFields describes the settings that only the command line has.
func optionFields() []fieldRow {
	return []fieldRow{
		{"flags.rootDir", "directory of pods, volumes and plugins", ""},
		{"flags.stateDir", "directory of the database, containers and images", ""},
		{"flags.runDir", "directory of sockets and pinned namespaces, lost at reboot", ""},
		{"flags.config", "KubeletConfiguration file; not given: /etc/islet/kubelet.yaml if it exists", ""},
		{"flags.configDir", "directory of *.conf files that are merged into it, in lexical order", ""},
		{"flags.edgeConfig", "EdgeConfiguration file; not given: /etc/islet/edge.yaml if it exists", ""},
		{"flags.kubeconfig", "kubeconfig file with the address and credentials of the API server", ""},
		{"flags.bootstrapKubeconfig", "kubeconfig file for TLS bootstrap, which creates the file of --kubeconfig", ""},
		{"flags.certDir", "directory of certificates; empty: pki in the root directory", ""},
		{"flags.hostnameOverride", "the node's name; empty: the host's", ""},
		{"flags.nodeIP", "the node's address, or one of each IP family", ""},
		{"flags.nodeLabels", "labels of a node that registers itself. On an existing Node only the labels about host name, OS, " +
			"architecture, zone, region and instance type are set", ""},
		{"flags.cloudProvider", "empty or external", ""},
		{"flags.imageCredentialProviderConfig", "configuration of image credential plugins: a file, or a directory " +
			"of .json, .yaml and .yml files", ""},
		{"flags.imageCredentialProviderBinDir", "directory of image credential plugins, which must be writable by root only", ""},
		{"flags.minimumContainerTTL", "minimum time that an exited container is kept, with its log", ""},
		{"flags.maxDeadPerContainer", "exited instances that are kept of one container; negative: no limit. The " +
			"newest one stays as long as its pod", ""},
		{"flags.maxDeadContainers", "exited containers that are kept on the node, distributed evenly among containers; -1: no limit", ""},
	}
}
