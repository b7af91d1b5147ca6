package config

// uselessFlags returns flags of kubelet 1.37 that have no effect in islet.
func uselessFlags() []flagRow {
	const (
		cadvisor = "islet reads cgroups itself, without cAdvisor"
		locked   = "the database in --state-dir already locks out a second agent"
		waits    = "log lines are written at once"
	)
	return []flagRow{
		{name: "runtime-cgroups", none: "the runtime is part of islet's own process"},
		{name: "lock-file", none: locked},
		{name: "exit-on-lock-contention", none: locked, bare: true},
		{name: "experimental-mounter-path", none: "volumes are mounted by system calls"},
		{name: "experimental-allocatable-ignore-eviction",
			none: "the hard eviction thresholds are always subtracted from allocatable", bare: true},
		{name: "log-text-info-buffer-size", none: waits},
		{name: "log-json-info-buffer-size", none: waits},
		{name: "housekeeping-interval", none: cadvisor},
	}
}

// removedFlags returns the flags of cAdvisor that kubelet 1.37 removed. Like a kubelet, islet refuses them.
func removedFlags() []string {
	return []string{
		"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace", "enable-load-reader",
		"event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval", "log-cadvisor-usage", "machine-id-file",
		"storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host", "storage-driver-password", "storage-driver-secure",
		"storage-driver-table", "storage-driver-user",
	}
}

// legacyFlags returns flags that older kubelets had.
func legacyFlags() []flagRow {
	const (
		docker   = "islet has no Docker; its runtime is built in"
		rkt      = "islet has no rkt; its runtime is built in"
		klog     = "all log lines go to standard error"
		nocloud  = "cloud providers run outside the node"
		netplug  = "a network configuration in --cni-conf-dir is used if there is one, else the built-in network"
		sources  = "host namespaces are allowed for pods of every source"
		removed  = "kubelets removed it long ago"
		endpoint = "the address of the API server is in --kubeconfig"
	)
	return []flagRow{
		{name: "container-runtime", none: "the runtime is built in, or the one at --container-runtime-endpoint"},
		{name: "pod-infra-container-image", none: "pods have no pause container"},
		{name: "network-plugin", none: netplug},
		{name: "network-plugin-dir", none: netplug},
		{name: "network-plugin-mtu", none: "pods have an MTU of 1500, and their TCP segments fit the MTU of the node's routes"},
		{name: "cni-cache-dir", none: "the cache is in --state-dir"},
		{name: "non-masquerade-cidr", none: "the network decides what to masquerade"},
		{name: "configure-cbr0", none: netplug, bare: true},
		{name: "reconcile-cidr", none: netplug, bare: true},
		{name: "allow-privileged", none: "privileged containers are always allowed", bare: true},
		{name: "host-network-sources", none: sources},
		{name: "host-pid-sources", none: sources},
		{name: "host-ipc-sources", none: sources},
		{name: "cloud-config", none: nocloud},
		{name: "azure-container-registry-config", none: nocloud},
		{name: "google-json-key", none: nocloud},
		{name: "api-servers", none: endpoint},
		{name: "auth-path", none: endpoint},
		{name: "require-kubeconfig", none: endpoint, bare: true},
		{name: "master-service-namespace", none: "the kubernetes Service is in the namespace default"},
		{name: "register-schedulable", none: "use --register-with-taints", bare: true},
		{name: "keep-terminated-pod-volumes", none: "volumes of ended pods are removed", bare: true},
		{name: "image-pull-progress-deadline", none: "a stalled pull is resumed"},
		{name: "docker", none: docker},
		{name: "docker-endpoint", none: docker},
		{name: "docker-exec-handler", none: docker},
		{name: "docker-root", none: docker},
		{name: "docker-only", none: docker, bare: true},
		{name: "docker-env-metadata-whitelist", none: docker},
		{name: "docker-disable-shared-pid", none: docker, bare: true},
		{name: "docker-tls", none: docker, bare: true},
		{name: "docker-tls-ca", none: docker},
		{name: "docker-tls-cert", none: docker},
		{name: "docker-tls-key", none: docker},
		{name: "experimental-dockershim", none: docker, bare: true},
		{name: "experimental-dockershim-root-directory", none: docker},
		{name: "enable-cri", none: docker, bare: true},
		{name: "rkt-path", none: rkt},
		{name: "rkt-api-endpoint", none: rkt},
		{name: "rkt-stage1-image", none: rkt},
		{name: "containerized", none: "islet runs on the host", bare: true},
		{name: "experimental-mounter-rootfs", none: "volumes are mounted by system calls"},
		{name: "redirect-container-streaming", none: "streams go through the agent", bare: true},
		{name: "dynamic-config-dir", none: "kubelets no longer have dynamic configuration"},
		{name: "init-config-dir", none: "kubelets no longer have dynamic configuration"},
		{name: "bootstrap-checkpoint-path", none: "pods are stored in the database in --state-dir"},
		{name: "seccomp-profile-root", none: "profiles are in seccomp in --root-dir"},
		{name: "cadvisor-port", none: "islet reads cgroups itself, without cAdvisor"},
		{name: "enable-cadvisor-json-endpoints", none: "islet reads cgroups itself, without cAdvisor", bare: true},
		{name: "enable-custom-metrics", none: removed, bare: true},
		{name: "low-diskspace-threshold-mb", none: "use --eviction-hard"},
		{name: "outofdisk-transition-frequency", none: "use --eviction-pressure-transition-period"},
		{name: "resource-container", none: "use --kubelet-cgroups"},
		{name: "system-container", none: "use --system-cgroups"},
		{name: "babysit-daemons", none: removed, bare: true},
		{name: "chaos-chance", none: removed},
		{name: "really-crash-for-testing", none: removed, bare: true},
		{name: "experimental-fail-swap-on", none: "use --fail-swap-on", bare: true},
		{name: "experimental-check-node-capabilities-before-mount", none: removed, bare: true},
		{name: "experimental-nvidia-gpus", none: "use a device plugin"},
		{name: "logtostderr", none: klog, bare: true},
		{name: "alsologtostderr", none: klog, bare: true},
		{name: "stderrthreshold", none: klog},
		{name: "log-dir", none: klog},
		{name: "log-file", none: klog},
		{name: "log-file-max-size", none: klog},
		{name: "log-backtrace-at", none: klog},
		{name: "add-dir-header", none: klog, bare: true},
		{name: "one-output", none: klog, bare: true},
		{name: "skip-headers", none: klog, bare: true},
		{name: "skip-log-headers", none: klog, bare: true},
	}
}
