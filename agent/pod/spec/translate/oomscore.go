package translate

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// These are the kubelet's values of oom_score_adj.
const (
	guaranteedOOM = -997
	besteffortOOM = 1000
)

// oomScoreAdj returns a container's oom_score_adj. The kernel's OOM killer kills best-effort containers first, then
// burstable ones by their memory request, and guaranteed and critical ones last. A sidecar is not killed before the
// main containers.
func oomScoreAdj(pod *v1.Pod, ctr *v1.Container, capacity int64) int64 {
	if demand.HasPriority(pod, demand.SystemNodeCritical) {
		return guaranteedOOM
	}
	switch demand.Class(pod) {
	case v1.PodQOSGuaranteed:
		return guaranteedOOM
	case v1.PodQOSBestEffort:
		return besteffortOOM
	}
	if capacity <= 0 {
		return besteffortOOM - 1
	}
	adj := 1000 - 1000*demand.ScoreMemory(pod, ctr)/capacity
	return min(max(adj, 1000+guaranteedOOM), besteffortOOM-1)
}
