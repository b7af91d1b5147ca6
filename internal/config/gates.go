package config

import (
	_ "embed"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// gatesText has a line for each feature gate that a kubelet knows: its name, its stage, its
// default, and whether it is locked to that. It is written by test/cluster/upstream.
//
//go:embed gates-1.36.txt
var gatesText string

// A knownGate is a feature gate of a kubelet.
type knownGate struct {
	stage      string // ALPHA, BETA, GA or DEPRECATED
	on, locked bool
}

// knownGates are the feature gates of a kubelet by name, but for those of all of a stage.
func knownGates() map[string]knownGate {
	out := map[string]knownGate{}
	for line := range strings.Lines(gatesText) {
		if f := strings.Fields(line); len(f) >= 3 {
			out[f[0]] = knownGate{f[1], f[2] == "true", len(f) > 3}
		}
	}
	return out
}

// featureGates takes only gates that a kubelet knows, as it does, and none of what is not
// built. What they turn off, and what is beta, may be: of that notices tell.
func (c *checker) featureGates() {
	known := knownGates()
	for name, on := range c.k.FeatureGates {
		gate, ok := known[name]
		path := field.NewPath("featureGates").Key(name)
		switch {
		case name == gateAllAlpha && on:
			c.forbidden(path.String(), "not all that is alpha in Kubernetes %s is built: name the gates that are wanted", KubernetesMinor)
		case name == gateAllAlpha, name == gateAllBeta:
		case !ok:
			c.invalid(path, on, "Kubernetes %s has no such feature gate", KubernetesMinor)
		case gate.locked && on != gate.on:
			c.invalid(path, on, "the feature gate is locked to %v in Kubernetes %s: leave it out", gate.on, KubernetesMinor)
		case on && slices.Contains(unbuilt(), name):
			c.forbidden(path.String(), "it is alpha in Kubernetes %s and not built: leave it out", KubernetesMinor)
		}
	}
}

// on tells whether a feature gate is on: as given, else kubelet 1.36's default.
func (c *checker) on(gate string) bool { return gateOn(c.k.FeatureGates, gate) }

func gateOn(given map[string]bool, gate string) bool {
	if on, ok := given[gate]; ok {
		return on
	}
	if on, ok := given[gateAllBeta]; ok && slices.Contains(betaGates(), gate) {
		return on
	}
	return !slices.Contains(offGates(), gate) // the others that somebody asks for are on
}

// offGates are alpha.
func offGates() []string {
	return []string{gateMemoryQoS, gateQoSReserved, gateCPUAlpha, gateTopologyAlpha, gatePodLevelManagers, gateLogging}
}

// betaGates are those that are beta and on.
func betaGates() []string {
	return []string{gateCPUBeta, gateTopologyBeta, gateShutdown, gateShutdownPriority, gateCrashLoop, gatePulledImages, gateServingCert}
}

// unbuilt are alpha gates of what a kubelet would do and islet does not.
func unbuilt() []string {
	return []string{
		gatePodLevelManagers, "CRIListStreaming", "DRAWorkloadResourceClaims", "ImageVolumeWithDigest", "InPlacePodVerticalScalingExclusiveCPUs",
		"InPlacePodVerticalScalingExclusiveMemory", "KubeletInUserNamespace", "NativeHistograms", "PodAndContainerStatsFromCRI", "PodsAPI",
		"ReduceDefaultCrashLoopBackOffDecay", "TaintTolerationComparisonOperators",
	}
}

// gates are all that something here depends on.
func gates() []string { return slices.Concat(offGates(), betaGates(), []string{gateQuotaPeriod}) }

// Features calls f with each feature gate that something here depends on: its stage in
// Kubernetes 1.36, as kubernetes_feature_enabled has it, and whether it is on.
func (c *Config) Features(f func(name, stage string, on bool)) {
	for _, name := range offGates() {
		f(name, "ALPHA", c.Gate(name))
	}
	for _, name := range betaGates() {
		f(name, "BETA", c.Gate(name))
	}
	f(gateQuotaPeriod, "", c.Gate(gateQuotaPeriod))
}

// The feature gates that validation asks for.
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
	gateLogging          = "LoggingAlphaOptions"
)
