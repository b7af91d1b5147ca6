package config

import (
	_ "embed"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// gatesText contains a line for each feature gate of a kubelet: its name, its stage, its default,
// and whether it is locked to the default. test/cluster/upstream generates the file.
//
//go:embed gates-1.37.txt
var gatesText string

// A knownGate is a feature gate of a kubelet.
type knownGate struct {
	stage      string // ALPHA, BETA, GA or DEPRECATED
	on, locked bool
}

// knownGates returns the feature gates of a kubelet by name, without AllAlpha and AllBeta.
func knownGates() map[string]knownGate {
	out := map[string]knownGate{}
	for line := range strings.Lines(gatesText) {
		if f := strings.Fields(line); len(f) >= 3 {
			out[f[0]] = knownGate{f[1], f[2] == "true", len(f) > 3}
		}
	}
	return out
}

// checkFeatureGates rejects gates that a kubelet does not know, and gates of features that islet
// does not have. A gate that turns a feature off is always valid. If such a gate has no effect, a
// notice reports this.
func (c *checker) checkFeatureGates() {
	known := knownGates()
	for name, on := range c.k.FeatureGates {
		gate, ok := known[name]
		path := field.NewPath("featureGates").Key(name)
		switch {
		case name == gateAllAlpha && on:
			c.addForbidden(path.String(),
				"islet does not have all alpha features of Kubernetes %s: set the needed gates one by one", KubernetesMinor)
		case name == gateAllAlpha, name == gateAllBeta:
		case !ok:
			c.addInvalid(path, on, "Kubernetes %s has no such feature gate", KubernetesMinor)
		case gate.locked && on != gate.on:
			c.addInvalid(path, on, "the feature gate is locked to %v in Kubernetes %s: leave it out", gate.on, KubernetesMinor)
		case on && slices.Contains(unsupportedGates(), name):
			c.addForbidden(path.String(), "islet does not have this feature of Kubernetes %s: leave the gate out", KubernetesMinor)
		}
	}
}

// gateIsOn reports whether a feature gate is on. If the gate is not configured, it has the default of kubelet 1.37.
func (c *checker) gateIsOn(gate string) bool { return gateOn(c.k.FeatureGates, gate) }

func gateOn(given map[string]bool, gate string) bool {
	if on, ok := given[gate]; ok {
		return on
	}
	if on, ok := given[gateAllBeta]; ok && slices.Contains(betaGates(), gate) {
		return on
	}
	return !slices.Contains(offGates(), gate) // all other supported gates are on by default
}

// offGates returns the supported gates that are off by default.
func offGates() []string {
	return []string{gateQoSReserved, gateCPUAlpha, gateTopologyAlpha, gatePodLevelManagers, gateLogging,
		gatePodSysctls, gateGRPCProbeTLS, gateH2CProbe, gateAllocatedPods, GateEmptyDirMode, GateFileOwners, GateBindOptions}
}

// betaGates returns the supported beta gates, which are on by default.
func betaGates() []string {
	return []string{gateMemoryQoS, gateCPUBeta, gateTopologyBeta, gateShutdown, gateShutdownPriority, gateCrashLoop,
		gatePulledImages, gateServingCert, gatePodsAPI}
}

// unsupportedGates returns the gates that are off by default and whose feature islet does not have.
func unsupportedGates() []string {
	return []string{
		gatePodLevelManagers, "CRIListStreaming", "CSIVolumeHealth", "DRANodeAllocatableResources", "DRAOptionalNodeOperations",
		"DRAWorkloadResourceClaims", "ImageVolumeWithDigest",
		"InPlacePodVerticalScalingExclusiveCPUs",
		"InPlacePodVerticalScalingExclusiveMemory",
		"InPlacePodVerticalScalingMemoryBackedVolumes", "PodAndContainerStatsFromCRI",
		"ReduceDefaultCrashLoopBackOffDecay", "TaintTolerationComparisonOperators", "UserNamespacesHostNetworkSupport",
	}
}

// supportedGates returns all gates that have an effect in islet.
func supportedGates() []string {
	return slices.Concat(offGates(), betaGates(), []string{gateQuotaPeriod, gateSELinuxMount})
}

// VisitFeatures calls f for each feature gate that has an effect in islet. It passes the gate's
// name, the gate's stage in Kubernetes 1.37, and whether the gate is on. The stage has the form
// that the metric kubernetes_feature_enabled uses.
func (c *Config) VisitFeatures(f func(name, stage string, on bool)) {
	known := knownGates()
	for _, name := range supportedGates() {
		f(name, strings.TrimPrefix(known[name].stage, "GA"), c.GateEnabled(name))
	}
}

// These are the feature gates with an effect in islet.
const (
	gateAllAlpha         = "AllAlpha"
	gateAllBeta          = "AllBeta"
	gateMemoryQoS        = "MemoryQoS"
	gateQoSReserved      = "QOSReserved"
	gateCPUAlpha         = "CPUManagerPolicyAlphaOptions"
	gateCPUBeta          = "CPUManagerPolicyBetaOptions"
	gateTopologyAlpha    = "TopologyManagerPolicyAlphaOptions"
	gateTopologyBeta     = "TopologyManagerPolicyBetaOptions"
	gatePodLevelManagers = "PodLevelResourceManagers"
	gateShutdown         = "GracefulNodeShutdown"
	gateShutdownPriority = "GracefulNodeShutdownBasedOnPodPriority"
	gateCrashLoop        = "KubeletCrashLoopBackOffMax"
	gatePulledImages     = "KubeletEnsureSecretPulledImages"
	gateServingCert      = "RotateKubeletServerCertificate"
	gateQuotaPeriod      = "CustomCPUCFSQuotaPeriod"
	gateSELinuxMount     = "SELinuxMount"
	gateLogging          = "LoggingAlphaOptions"
	gatePodSysctls       = "DefaultPodSysctls"
	gatePodsAPI          = "PodsAPI"
	gateGRPCProbeTLS     = "GRPCContainerProbeTLS"
	gateH2CProbe         = "H2CContainerProbe"
	gateAllocatedPods    = "KubeletAllocatedPodsEndpoint"

	GateEmptyDirMode = "EmptyDirVolumeMode"          // emptyDir.mode
	GateFileOwners   = "AtomicWriteVolumeUserFields" // defaultUser and user of files in volumes
	GateBindOptions  = "VolumeBindMountOptions"      // volumeMounts[].bindMountOptions
)
