package eviction

import (
	"fmt"
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/podspec"
)

// A Limit identifies the kind of an exceeded limit. Its value is a label of the metric of evictions.
type Limit string

// Limits on a pod's files.
// https://kubernetes.io/docs/concepts/storage/ephemeral-storage/#resource-emphemeralstorage-consumption
const (
	volumeLimit    Limit = "emptydirfs.limit"
	podLimit       Limit = "ephemeralpodfs.limit"
	containerLimit Limit = "ephemeralcontainerfs.limit"
)

// HasMeasuredLimit reports whether a pod has a limit on files that can be enforced only by measuring them.
func HasMeasuredLimit(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if diskLimit(&p.Spec.Volumes[i]) != nil {
			return true
		}
	}
	_, all := demand.Limits(p)[v1.ResourceEphemeralStorage]
	if all {
		return true
	}
	for range limitedContainers(p) {
		return true
	}
	return false
}

// limitedContainers returns the containers and sidecars that have a limit on ephemeral storage.
func limitedContainers(p *v1.Pod) iter.Seq2[*v1.Container, *resource.Quantity] {
	return func(yield func(*v1.Container, *resource.Quantity) bool) {
		for kind, ctr := range podspec.Containers(&p.Spec) {
			if limit := ctr.Resources.Limits.StorageEphemeral(); (kind == podspec.Main || kind == podspec.Sidecar) &&
				!limit.IsZero() && !yield(ctr, limit) {
				return
			}
		}
	}
}

// diskLimit returns the size limit of an emptyDir on disk, or nil if the volume has none.
func diskLimit(v *v1.Volume) *resource.Quantity {
	if e := v.EmptyDir; e != nil && e.Medium == v1.StorageMediumDefault && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
		return e.SizeLimit
	}
	return nil
}

// FindExceeded returns the limit that a pod exceeds, and a kubelet's message for it. It returns "" if the pod exceeds
// no limit. The parameter layers is true if writable layers are on the node's disk. Only in this case they count.
func FindExceeded(c Candidate, layers bool) (Limit, string) {
	if c.Stats == nil {
		return "", ""
	}
	for i := range c.Pod.Spec.Volumes {
		v := &c.Pod.Spec.Volumes[i]
		limit := diskLimit(v)
		if limit == nil {
			continue
		}
		for j := range c.Stats.VolumeStats {
			if s := &c.Stats.VolumeStats[j]; s.Name == v.Name && floatValue(s.UsedBytes) > limit.AsApproximateFloat64() {
				return volumeLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String())
			}
		}
	}
	if limit, ok := demand.Limits(c.Pod)[v1.ResourceEphemeralStorage]; ok && c.Stats.EphemeralStorage != nil &&
		floatValue(c.Stats.EphemeralStorage.UsedBytes) > limit.AsApproximateFloat64() {
		return podLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for ctr, limit := range limitedContainers(c.Pod) {
		for j := range c.Stats.Containers {
			s := &c.Stats.Containers[j]
			if s.Name != ctr.Name {
				continue
			}
			used := 0.0
			if s.Logs != nil {
				used += floatValue(s.Logs.UsedBytes)
			}
			if s.Rootfs != nil && layers {
				used += floatValue(s.Rootfs.UsedBytes)
			}
			if used > limit.AsApproximateFloat64() {
				return containerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", ctr.Name, limit.String())
			}
		}
	}
	return "", ""
}
