package config

// A flagRow describes one flag of the command line. Its member field is the JSON path of the setting that the flag changes, relative to
// the type settings. For a flag without effect, this path is empty, and the member none contains the reason. The member bare is true if
// such a flag may be used without a value.
type flagRow struct {
	name, field, none string
	bare              bool
}

// flagTable returns every flag of kubelet 1.37, islet's own flags, and flags of older kubelets that guides still use.
func flagTable() []flagRow {
	rows := []flagRow{
		// These settings are not in a KubeletConfiguration.
		{name: "root-dir", field: "flags.rootDir"},
		{name: "state-dir", field: "flags.stateDir"},
		{name: "run-dir", field: "flags.runDir"},
		{name: "config", field: "flags.config"},
		{name: "config-dir", field: "flags.configDir"},
		{name: "edge-config", field: "flags.edgeConfig"},
		{name: "kubeconfig", field: "flags.kubeconfig"},
		{name: "bootstrap-kubeconfig", field: "flags.bootstrapKubeconfig"},
		{name: "experimental-bootstrap-kubeconfig", field: "flags.bootstrapKubeconfig"},
		{name: "cert-dir", field: "flags.certDir"},
		{name: "hostname-override", field: "flags.hostnameOverride"},
		{name: "node-ip", field: "flags.nodeIP"},
		{name: "node-labels", field: "flags.nodeLabels"},
		{name: "cloud-provider", field: "flags.cloudProvider"},
		{name: "image-credential-provider-config", field: "flags.imageCredentialProviderConfig"},
		{name: "image-credential-provider-bin-dir", field: "flags.imageCredentialProviderBinDir"},
		{name: "minimum-container-ttl-duration", field: "flags.minimumContainerTTL"},
		{name: "maximum-dead-containers-per-container", field: "flags.maxDeadPerContainer"},
		{name: "maximum-dead-containers", field: "flags.maxDeadContainers"},

		// These flags set fields of the EdgeConfiguration, under the kubelet's former names.
		{name: "cni-conf-dir", field: "edge.cniConfDir"},
		{name: "cni-bin-dir", field: "edge.cniBinDirs"},

		// Logging.
		{name: "v", field: "logging.verbosity"},
		{name: "vmodule", field: "logging.vmodule"},
		{name: "logging-format", field: "logging.format"},
		{name: "log-flush-frequency", field: "logging.flushFrequency"},
		{name: "log-text-split-stream", field: "logging.options.text.splitStream"},
		{name: "log-json-split-stream", field: "logging.options.json.splitStream"},
	}
	rows = append(rows, kubeletFlags()...)
	rows = append(rows, uselessFlags()...)
	return append(rows, legacyFlags()...)
}

// DescribeFlag reports whether islet knows a flag of a kubelet. The name has no dashes. If the flag has no effect, none contains the
// reason.
func DescribeFlag(name string) (none string, known bool) {
	for _, row := range flagTable() {
		if row.name == name {
			return row.none, true
		}
	}
	return "", false
}

// kubeletFlags returns the flags that set fields of the KubeletConfiguration, in the order of the kubelet's help.
func kubeletFlags() []flagRow {
	return []flagRow{
		{name: "enable-server", field: "enableServer"},
		{name: "fail-swap-on", field: "failSwapOn"},
		{name: "fail-cgroupv1", field: "failCgroupV1"},
		{name: "pod-manifest-path", field: "staticPodPath"},
		{name: "manifest-url", field: "staticPodURL"},
		{name: "manifest-url-header", field: "staticPodURLHeader"},
		{name: "sync-frequency", field: "syncFrequency"},
		{name: "file-check-frequency", field: "fileCheckFrequency"},
		{name: "http-check-frequency", field: "httpCheckFrequency"},
		{name: "address", field: "address"},
		{name: "port", field: "port"},
		{name: "read-only-port", field: "readOnlyPort"},
		{name: "container-runtime-endpoint", field: "containerRuntimeEndpoint"},
		{name: "image-service-endpoint", field: "imageServiceEndpoint"},
		{name: "anonymous-auth", field: "authentication.anonymous.enabled"},
		{name: "authentication-token-webhook", field: "authentication.webhook.enabled"},
		{name: "authentication-token-webhook-cache-ttl", field: "authentication.webhook.cacheTTL"},
		{name: "client-ca-file", field: "authentication.x509.clientCAFile"},
		{name: "authorization-mode", field: "authorization.mode"},
		{name: "authorization-webhook-cache-authorized-ttl", field: "authorization.webhook.cacheAuthorizedTTL"},
		{name: "authorization-webhook-cache-unauthorized-ttl", field: "authorization.webhook.cacheUnauthorizedTTL"},
		{name: "tls-cert-file", field: "tlsCertFile"},
		{name: "tls-private-key-file", field: "tlsPrivateKeyFile"},
		{name: "tls-cipher-suites", field: "tlsCipherSuites"},
		{name: "tls-min-version", field: "tlsMinVersion"},
		{name: "rotate-certificates", field: "rotateCertificates"},
		{name: "rotate-server-certificates", field: "serverTLSBootstrap"},
		{name: "registry-qps", field: "registryPullQPS"},
		{name: "registry-burst", field: "registryBurst"},
		{name: "event-qps", field: "eventRecordQPS"},
		{name: "event-burst", field: "eventBurst"},
		{name: "enable-debugging-handlers", field: "enableDebuggingHandlers"},
		{name: "contention-profiling", field: "enableContentionProfiling"},
		{name: "healthz-port", field: "healthzPort"},
		{name: "healthz-bind-address", field: "healthzBindAddress"},
		{name: "oom-score-adj", field: "oomScoreAdj"},
		{name: "cluster-domain", field: "clusterDomain"},
		{name: "cluster-dns", field: "clusterDNS"},
		{name: "volume-plugin-dir", field: "volumePluginDir"},
		{name: "streaming-connection-idle-timeout", field: "streamingConnectionIdleTimeout"},
		{name: "node-status-update-frequency", field: "nodeStatusUpdateFrequency"},
		{name: "node-status-max-images", field: "nodeStatusMaxImages"},
		{name: "minimum-image-ttl-duration", field: "imageMinimumGCAge"},
		{name: "image-gc-high-threshold", field: "imageGCHighThresholdPercent"},
		{name: "image-gc-low-threshold", field: "imageGCLowThresholdPercent"},
		{name: "volume-stats-agg-period", field: "volumeStatsAggPeriod"},
		{name: "feature-gates", field: "featureGates"},
		{name: "kubelet-cgroups", field: "kubeletCgroups"},
		{name: "system-cgroups", field: "systemCgroups"},
		{name: "provider-id", field: "providerID"},
		{name: "cgroups-per-qos", field: "cgroupsPerQOS"},
		{name: "experimental-cgroups-per-qos", field: "cgroupsPerQOS"},
		{name: "cgroup-driver", field: "cgroupDriver"},
		{name: "cgroup-root", field: "cgroupRoot"},
		{name: "cpu-manager-policy", field: "cpuManagerPolicy"},
		{name: "cpu-manager-policy-options", field: "cpuManagerPolicyOptions"},
		{name: "cpu-manager-reconcile-period", field: "cpuManagerReconcilePeriod"},
		{name: "memory-manager-policy", field: "memoryManagerPolicy"},
		{name: "reserved-memory", field: "reservedMemory"},
		{name: "topology-manager-policy", field: "topologyManagerPolicy"},
		{name: "topology-manager-scope", field: "topologyManagerScope"},
		{name: "topology-manager-policy-options", field: "topologyManagerPolicyOptions"},
		{name: "qos-reserved", field: "qosReserved"},
		{name: "experimental-qos-reserved", field: "qosReserved"},
		{name: "runtime-request-timeout", field: "runtimeRequestTimeout"},
		{name: "hairpin-mode", field: "hairpinMode"},
		{name: "max-pods", field: "maxPods"},
		{name: "pods-per-core", field: "podsPerCore"},
		{name: "pod-cidr", field: "podCIDR"},
		{name: "pod-max-pids", field: "podPidsLimit"},
		{name: "resolv-conf", field: "resolvConf"},
		{name: "runonce", field: "runOnce"},
		{name: "cpu-cfs-quota", field: "cpuCFSQuota"},
		{name: "cpu-cfs-quota-period", field: "cpuCFSQuotaPeriod"},
		{name: "enable-controller-attach-detach", field: "enableControllerAttachDetach"},
		{name: "make-iptables-util-chains", field: "makeIPTablesUtilChains"},
		{name: "container-log-max-size", field: "containerLogMaxSize"},
		{name: "container-log-max-files", field: "containerLogMaxFiles"},
		{name: "allowed-unsafe-sysctls", field: "allowedUnsafeSysctls"},
		{name: "kernel-memcg-notification", field: "kernelMemcgNotification"},
		{name: "experimental-kernel-memcg-notification", field: "kernelMemcgNotification"},
		{name: "local-storage-capacity-isolation", field: "localStorageCapacityIsolation"},
		{name: "max-open-files", field: "maxOpenFiles"},
		{name: "kube-api-content-type", field: "contentType"},
		{name: "kube-api-qps", field: "kubeAPIQPS"},
		{name: "kube-api-burst", field: "kubeAPIBurst"},
		{name: "serialize-image-pulls", field: "serializeImagePulls"},
		{name: "eviction-hard", field: "evictionHard"},
		{name: "eviction-soft", field: "evictionSoft"},
		{name: "eviction-soft-grace-period", field: "evictionSoftGracePeriod"},
		{name: "eviction-pressure-transition-period", field: "evictionPressureTransitionPeriod"},
		{name: "eviction-max-pod-grace-period", field: "evictionMaxPodGracePeriod"},
		{name: "eviction-minimum-reclaim", field: "evictionMinimumReclaim"},
		{name: "protect-kernel-defaults", field: "protectKernelDefaults"},
		{name: "reserved-cpus", field: "reservedSystemCPUs"},
		{name: "system-reserved", field: "systemReserved"},
		{name: "kube-reserved", field: "kubeReserved"},
		{name: "enforce-node-allocatable", field: "enforceNodeAllocatable"},
		{name: "system-reserved-cgroup", field: "systemReservedCgroup"},
		{name: "kube-reserved-cgroup", field: "kubeReservedCgroup"},
		{name: "register-node", field: "registerNode"},
		{name: "register-with-taints", field: "registerWithTaints"},
		{name: "seccomp-default", field: "seccompDefault"},
		{name: "iptables-masquerade-bit", field: "iptablesMasqueradeBit"},
		{name: "iptables-drop-bit", field: "iptablesDropBit"},
	}
}
