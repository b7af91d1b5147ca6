package config

import "slices"

// These are reasons why a field gives power over the node or over data on it.
const (
	powerEnter   = "who may use the kubelet API: a command in a privileged container is root on the node"
	powerServed  = "which data the kubelet API serves to authorized clients"
	powerListen  = "at which addresses the node can be reached"
	powerTLS     = "how connections to the node are protected"
	powerPods    = "which parts of the kernel, which devices and which images of others a pod may use"
	powerTime    = "which pods may take CPU time before the node's own software and before other pods"
	powerNames   = "which server resolves DNS names for pods"
	powerProtect = "the limits that protect the node and pods from pods that use too much"
	powerGates   = "a feature gate can turn off a protection, such as KubeletEnsureSecretPulledImages"
	powerTaints  = "which pods may be scheduled to a newly registered node"
	powerExpire  = "without it the node loses its access to the cluster when its certificate expires, long after a trial"
)

// Binding is the version of the list of fields that belong to the node. A configuration that was accepted under an
// earlier version keeps its meaning: see SentConfiguration.Binding. Increase Binding when an existing field is added to the list. A
// new field requires no increase, because no earlier configuration contains it.
const Binding = 1

// powerFields returns the fields that belong to the node because they give power over it. A change
// that restores the value of the node's own files needs no consent.
func powerFields() []BoundField {
	return []BoundField{
		{"authentication.anonymous.enabled", powerEnter}, {"authentication.webhook.enabled", powerEnter},
		{"authentication.webhook.cacheTTL", powerEnter},
		{"authorization.mode", powerEnter}, {"authorization.webhook.cacheAuthorizedTTL", powerEnter},
		{"authorization.webhook.cacheUnauthorizedTTL", powerEnter},
		{"enableDebuggingHandlers", powerServed}, {"enableContentionProfiling", powerServed}, {"enableProfilingHandler", powerServed},
		{"enableDebugFlagsHandler", powerServed}, {"enableSystemLogHandler", powerServed}, {"enableSystemLogQuery", powerServed},
		{"enableServer", powerListen}, {"address", powerListen}, {"port", powerListen}, {"readOnlyPort", powerListen},
		{"healthzPort", powerListen}, {"healthzBindAddress", powerListen}, {"edge.statusPagePort", powerListen},
		{"tlsCipherSuites", powerTLS}, {"tlsCurvePreferences", powerTLS}, {"tlsMinVersion", powerTLS}, {"rotateCertificates", powerExpire},
		{"allowedUnsafeSysctls", powerPods}, {"defaultPodSysctls", powerPods}, {"seccompDefault", powerPods}, {"edge.devices", powerPods},
		{"imagePullCredentialsVerificationPolicy", powerPods}, {"preloadedImagesVerificationAllowlist", powerPods},
		{"edge.realTime.pods", powerTime}, {"edge.realTime.bandwidth", powerTime}, {"edge.realTime.busyLimit", powerTime},
		{"edge.realTime.allowUnthrottled", powerTime},
		{"clusterDNS", powerNames}, {"clusterDomain", powerNames},
		{"enforceNodeAllocatable", powerProtect}, {"localStorageCapacityIsolation", powerProtect},
		{"featureGates", powerGates}, {"registerWithTaints", powerTaints},
	}
}

// A FreeGroup is a set of fields that give no power over the node, with the reason. A ConfigMap for the node may change these fields
// without the node's consent.
type FreeGroup struct {
	Why    string
	Fields []string
}

// FreeGroups returns the fields that a sent configuration may change without the node's consent, grouped
// by the reason why these fields give no power over the node. A test checks that every field is either
// in these groups or in BoundFields.
func FreeGroups() []FreeGroup {
	return []FreeGroup{
		{"It is a period, a rate, or a limit of requests: the node becomes slower or faster.", []string{
			"syncFrequency", "fileCheckFrequency", "httpCheckFrequency", "registryPullQPS", "registryBurst",
			"serializeImagePulls", "maxParallelImagePulls",
			"eventRecordQPS", "eventBurst", "kubeAPIQPS", "kubeAPIBurst", "contentType", "nodeStatusUpdateFrequency",
			"nodeStatusReportFrequency", "nodeStatusMaxImages",
			"nodeLeaseDurationSeconds", "streamingConnectionIdleTimeout", "runtimeRequestTimeout", "volumeStatsAggPeriod",
			"configMapAndSecretChangeDetectionStrategy",
			"crashLoopBackOff.maxContainerRestartPeriod",
		}},
		{"It divides CPU, memory and process IDs among pods: the enforcement of the reservations and the cgroups of pods stay.", []string{
			"cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "memoryManagerPolicy",
			"topologyManagerPolicy", "topologyManagerScope",
			"topologyManagerPolicyOptions", "singleProcessOOMKill", "qosReserved", "podPidsLimit", "cpuCFSQuota",
			"cpuCFSQuotaPeriod", "systemReserved", "kubeReserved",
			"reservedSystemCPUs", "reservedMemory", "memorySwap.swapBehavior", "memoryThrottlingFactor",
			"memoryReservationPolicy", "oomScoreAdj", "maxOpenFiles", "edge.shimPods",
		}},
		{"It limits pods, images and logs: a new pressure fails the trial, and the protection against a full disk stays.", []string{
			"maxPods", "podsPerCore", "imageMinimumGCAge", "imageMaximumGCAge", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
			"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionPressureTransitionPeriod",
			"evictionMaxPodGracePeriod", "evictionMinimumReclaim",
			"mergeDefaultEvictionSettings", "containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers",
			"containerLogMonitorInterval",
			"edge.podLogQuota", "edge.flashBudget",
		}},
		{"It says when pods are terminated, or how long they continue to run; it gives nobody a right.", []string{
			"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority", "edge.holdPodsFor",
		}},
		{"It makes the agent start or refuse to start on this host, or set the kernel parameters of a kubelet; a node that refuses " +
			"returns to the previous configuration.", []string{
			"failSwapOn", "failCgroupV1", "protectKernelDefaults", "runOnce",
		}},
		{"It says what the node logs; only root and the service manager can read that.", []string{
			"logging.format", "logging.flushFrequency", "logging.verbosity", "logging.vmodule", "logging.options",
			"showHiddenMetricsForVersion", "tracing",
		}},
		{"The cluster decides the rest: it signs the certificate, accepts the Node, or attaches the volume.", []string{
			"serverTLSBootstrap", "registerNode", "enableControllerAttachDetach",
		}},
		{"It has no effect, or only on islet's own chain and bridge.", []string{
			"makeIPTablesUtilChains", "iptablesMasqueradeBit", "iptablesDropBit", "kernelMemcgNotification", "hairpinMode",
		}},
	}
}

// UnconsentedPowers returns the fields that give power over the node and have another value than in the node's own files. It omits
// the fields in the list consent. A configuration with such fields was accepted when the fields did not belong to the node yet.
func UnconsentedPowers(own, now *Config, consent []string) (names []string, _ error) {
	err := visitChanges(own, now, powerFields(), func(b BoundField, _ any) {
		if !slices.Contains(consent, b.Field) {
			names = append(names, b.Field)
		}
	})
	return names, err
}

// givesPower reports whether powerFields contains a field.
func givesPower(name string) bool {
	return slices.ContainsFunc(powerFields(), func(b BoundField) bool { return b.Field == name })
}
