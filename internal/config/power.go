package config

import "slices"

// Reasons why a field gives power over the node, or over what others trust it with.
const (
	powerEnter   = "who is let in to the kubelet API: a command in a privileged container is root on the node"
	powerServed  = "what the kubelet API gives to whom it lets in"
	powerListen  = "where the node can be reached"
	powerTLS     = "how a connection to the node is protected"
	powerPods    = "what a pod may reach of the kernel, the devices and the images of others"
	powerNames   = "which server answers the names that pods ask for"
	powerProtect = "what protects the node, and pods from each other, from what pods use up"
	powerGates   = "a feature gate can turn off a protection, such as KubeletEnsureSecretPulledImages"
	powerTaints  = "which pods may be scheduled to a node that registers itself anew"
	powerExpire  = "without it the node loses its way to the cluster when its certificate expires, long after a trial"
)

// Binding is the version of the list of fields that belong to the node. A configuration that a
// node keeps since an earlier version means what it meant then: see Sent.Binding.
const Binding = 1

// powers are the fields that belong to the node because whoever sets them gains power over it.
// A change back to what the node's own files have needs no consent.
func powers() []BoundField {
	return []BoundField{
		{"authentication.anonymous.enabled", powerEnter}, {"authentication.webhook.enabled", powerEnter}, {"authentication.webhook.cacheTTL", powerEnter},
		{"authorization.mode", powerEnter}, {"authorization.webhook.cacheAuthorizedTTL", powerEnter}, {"authorization.webhook.cacheUnauthorizedTTL", powerEnter},
		{"enableDebuggingHandlers", powerServed}, {"enableContentionProfiling", powerServed}, {"enableProfilingHandler", powerServed},
		{"enableDebugFlagsHandler", powerServed}, {"enableSystemLogHandler", powerServed}, {"enableSystemLogQuery", powerServed},
		{"enableServer", powerListen}, {"address", powerListen}, {"port", powerListen}, {"readOnlyPort", powerListen},
		{"healthzPort", powerListen}, {"healthzBindAddress", powerListen}, {"edge.statusPagePort", powerListen},
		{"tlsCipherSuites", powerTLS}, {"tlsCurvePreferences", powerTLS}, {"tlsMinVersion", powerTLS}, {"rotateCertificates", powerExpire},
		{"allowedUnsafeSysctls", powerPods}, {"seccompDefault", powerPods}, {"edge.devices", powerPods},
		{"imagePullCredentialsVerificationPolicy", powerPods}, {"preloadedImagesVerificationAllowlist", powerPods},
		{"clusterDNS", powerNames}, {"clusterDomain", powerNames},
		{"enforceNodeAllocatable", powerProtect}, {"localStorageCapacityIsolation", powerProtect},
		{"featureGates", powerGates}, {"registerWithTaints", powerTaints},
	}
}

// A FreeGroup is a set of fields that a sent configuration may change without the node's consent,
// and the reason why that gives no power.
type FreeGroup struct {
	Why    string
	Fields []string
}

// Free returns the fields that a sent configuration may change without the node's consent, grouped
// by the reason why they give no power. Every field is here or in Bound, and a test demands it.
func Free() []FreeGroup {
	return []FreeGroup{
		{"It is a period, a rate, or a bound of requests: the node works slower or faster.", []string{
			"syncFrequency", "fileCheckFrequency", "httpCheckFrequency", "registryPullQPS", "registryBurst", "serializeImagePulls", "maxParallelImagePulls",
			"eventRecordQPS", "eventBurst", "kubeAPIQPS", "kubeAPIBurst", "contentType", "nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "nodeStatusMaxImages",
			"nodeLeaseDurationSeconds", "streamingConnectionIdleTimeout", "runtimeRequestTimeout", "volumeStatsAggPeriod", "configMapAndSecretChangeDetectionStrategy",
			"crashLoopBackOff.maxContainerRestartPeriod",
		}},
		{"It divides CPU, memory and process IDs among pods: the enforcement of the node's own share and the cgroups of pods stay.", []string{
			"cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope",
			"topologyManagerPolicyOptions", "singleProcessOOMKill", "qosReserved", "podPidsLimit", "cpuCFSQuota", "cpuCFSQuotaPeriod", "systemReserved", "kubeReserved",
			"reservedSystemCPUs", "reservedMemory", "memorySwap.swapBehavior", "memoryThrottlingFactor", "memoryReservationPolicy", "oomScoreAdj", "maxOpenFiles", "edge.shimPods",
		}},
		{"It bounds pods, images and logs: the trial ends at the first pressure that was not there before, and the disk guard stays.", []string{
			"maxPods", "podsPerCore", "imageMinimumGCAge", "imageMaximumGCAge", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
			"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionPressureTransitionPeriod", "evictionMaxPodGracePeriod", "evictionMinimumReclaim",
			"mergeDefaultEvictionSettings", "containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers", "containerLogMonitorInterval",
			"edge.podLogQuota", "edge.flashBudget",
		}},
		{"It says when pods end, or how long they run on; nobody gains a right by it.", []string{
			"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority", "edge.holdPodsFor",
		}},
		{"It makes the agent start or refuse to start on a host as it is; a node that refuses goes back to the configuration before.", []string{
			"failSwapOn", "failCgroupV1", "protectKernelDefaults", "runOnce",
		}},
		{"It says what is logged of the node, where root alone, or the service manager, reads it.", []string{
			"logging.format", "logging.flushFrequency", "logging.verbosity", "logging.vmodule", "logging.options", "showHiddenMetricsForVersion", "tracing",
		}},
		{"The cluster decides the rest: it signs the certificate, accepts the Node, or attaches the volume.", []string{
			"serverTLSBootstrap", "registerNode", "enableControllerAttachDetach",
		}},
		{"It has no effect, or one on the chain and the bridge of islet's own alone.", []string{
			"makeIPTablesUtilChains", "iptablesMasqueradeBit", "iptablesDropBit", "kernelMemcgNotification", "hairpinMode",
		}},
	}
}

// Granted are the fields that give power and that a configuration has otherwise than the node's own
// files, without consent: it was accepted before they belonged to the node.
func Granted(own, now *Config, consent []string) (names []string, _ error) {
	err := differing(own, now, powers(), func(b BoundField, _ any) {
		if !slices.Contains(consent, b.Field) {
			names = append(names, b.Field)
		}
	})
	return names, err
}

// givesPower reports whether a field belongs to the node only for the power that it gives.
func givesPower(name string) bool {
	return slices.ContainsFunc(powers(), func(b BoundField) bool { return b.Field == name })
}
