package eviction

import (
	"cmp"
	"math"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/sorting"
)

// A Candidate is a pod with its figures.
type Candidate struct {
	Pod   *v1.Pod
	Stats *stats.PodStats // nil if the pod has no running container
}

// Disks describes whether images and writable layers are on the node's disk, which contains volumes and logs.
type Disks struct{ Image, Container bool }

// fileKinds is a set of kinds of files of a pod.
type fileKinds struct{ layers, logs, volumes bool }

// kindsOnDisk returns the kinds of files that are on the disk of the signal.
func (d Disks) kindsOnDisk(s Signal) fileKinds {
	onNode := fileKinds{layers: d.Container, logs: true, volumes: true}
	switch s {
	case NodeFs, NodeInodes:
		return onNode
	case ImageFs, ImageInodes:
		if d.Image {
			return onNode
		}
		return fileKinds{layers: !d.Container}
	default: // the disk of the containers
		if d.Container {
			return onNode
		}
		return fileKinds{layers: true}
	}
}

// fairPart is the minimum part of the missing amount that a pod must use to be evicted under disk pressure. For
// static pods this minimum applies under any pressure.
const fairPart = .1

// These are lower bounds for the missing amount of a disk: a part of the threshold, and a number of bytes or
// inodes. Without them, the missing amount would be too small while other files slowly fill the disk: at each
// evaluation the free space would be only just below the threshold.
const (
	leastPart   = .01
	leastBytes  = 10 << 20
	leastInodes = 1000
)

// targetAmount returns the amount that evictions for a threshold should free, in the signal's units. It is the missing
// amount. For a disk the lower bounds above also apply.
func (o Observations) targetAmount(t Threshold) float64 {
	missing := o.missingAmount(t)
	if !t.isOnDisk() {
		return missing
	}
	least := float64(leastBytes)
	if t.Signal.signalInfo().resource == inodes {
		least = leastInodes
	}
	return max(missing, float64(t.Value.units(o[t.Signal].Total))*leastPart, least)
}

// minUse returns how much of the disk a candidate must use to be evicted. It is a fair part of the missing amount.
// If all candidates together use at least the missing amount but the largest candidate uses less, it is a fair part
// of the largest candidate's use.
func minUse(used []float64, missing float64) float64 {
	sum, largest := 0.0, 0.0
	for _, u := range used {
		sum, largest = sum+u, max(largest, u)
	}
	if sum >= missing {
		return min(missing, largest) * fairPart
	}
	return missing * fairPart
}

// Rank returns the pods that may be evicted for a threshold. The first is evicted first. Pods that use more than
// their request are first. Next come pods with a lower priority, and then pods with the largest use beyond the
// request. There is no request for processes.
//
// Static pods are last. A static pod is included only if it uses a fair part of the missing amount, because it
// cannot be moved to another node. Under disk pressure this minimum applies to all pods, because the eviction of a
// small pod does not help if other files fill the disk. Pods without a running container come after pods with one.
// If the threshold is for memory or processes, pods without a running container are omitted, because their eviction
// would free nothing.
//
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#pod-selection-for-kubelet-eviction
func Rank(list []Candidate, s Signal, d Disks, missing float64) []Candidate {
	type place struct {
		Candidate
		exceeds  bool
		priority int32
		beyond   float64
	}
	what := s.signalInfo().resource
	onDisk := s.signalInfo().condition == v1.NodeDiskPressure
	fair := 0.0
	if onDisk {
		var all []float64
		for _, c := range list {
			if !demand.HasSystemPriority(c.Pod) {
				all = append(all, usedAmount(c, s, d))
			}
		}
		fair = minUse(all, missing)
	}
	var out []place
	for _, c := range list {
		if demand.HasSystemPriority(c.Pod) || c.Stats == nil && (what == v1.ResourceMemory || what == pids) {
			continue
		}
		p := place{Candidate: c}
		if c.Pod.Spec.Priority != nil {
			p.priority = *c.Pod.Spec.Priority
		}
		p.beyond = usedAmount(c, s, d)
		if demand.IsOwn(c.Pod) && p.beyond < missing*fairPart || onDisk && (p.beyond == 0 || p.beyond < fair) {
			continue
		}
		if what != pids {
			q := demand.Requests(c.Pod)[what]
			asked := q.AsApproximateFloat64()
			p.exceeds = p.beyond > asked
			p.beyond -= asked
		}
		out = append(out, p)
	}
	sorting.StableBy(out, func(a, b place) int {
		return cmp.Or(compareTrueFirst(a.Stats != nil, b.Stats != nil),
			compareTrueFirst(!demand.IsOwn(a.Pod), !demand.IsOwn(b.Pod)), compareTrueFirst(a.exceeds, b.exceeds),
			cmp.Compare(a.priority, b.priority), cmp.Compare(b.beyond, a.beyond), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	ranked := make([]Candidate, len(out))
	for i := range out {
		ranked[i] = out[i].Candidate
	}
	return ranked
}

// compareTrueFirst compares two booleans, so that true is sorted before false.
func compareTrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// usedAmount returns how much of the signal's resource a pod uses.
func usedAmount(c Candidate, s Signal, d Disks) float64 {
	st := c.Stats
	if st == nil {
		return 0
	}
	switch s.signalInfo().resource {
	case v1.ResourceMemory:
		if st.Memory == nil {
			return 0
		}
		return floatValue(st.Memory.WorkingSetBytes)
	case pids:
		if st.ProcessStats == nil {
			return 0
		}
		return floatValue(st.ProcessStats.ProcessCount)
	case inodes:
		return totalUse(c, d.kindsOnDisk(s), func(fs *stats.FsStats) *uint64 { return fs.InodesUsed })
	default:
		return totalUse(c, d.kindsOnDisk(s), bytesOf)
	}
}

func bytesOf(fs *stats.FsStats) *uint64 { return fs.UsedBytes }

func floatValue(n *uint64) float64 {
	if n == nil {
		return 0
	}
	return float64(min(*n, math.MaxInt64))
}

// totalUse returns how much disk space a pod uses for the given kinds of files.
func totalUse(c Candidate, in fileKinds, of func(*stats.FsStats) *uint64) (sum float64) {
	add := func(fs *stats.FsStats, yes bool) {
		if yes && fs != nil {
			sum += floatValue(of(fs))
		}
	}
	for i := range c.Stats.Containers {
		add(c.Stats.Containers[i].Rootfs, in.layers)
		add(c.Stats.Containers[i].Logs, in.logs)
	}
	for i := range c.Stats.VolumeStats {
		v := &c.Stats.VolumeStats[i]
		add(&v.FsStats, in.volumes && isLocal(c.Pod, v.Name))
	}
	if in.volumes {
		sum += otherFiles(c, of)
	}
	return sum
}

// otherFiles returns how much of the node's disk a pod uses for files that belong to no running container and no
// volume: /etc/hosts, termination logs, and logs of removed containers.
func otherFiles(c Candidate, of func(*stats.FsStats) *uint64) float64 {
	if c.Stats.EphemeralStorage == nil {
		return 0
	}
	rest := floatValue(of(c.Stats.EphemeralStorage))
	for i := range c.Stats.Containers {
		for _, fs := range []*stats.FsStats{c.Stats.Containers[i].Rootfs, c.Stats.Containers[i].Logs} {
			if fs != nil {
				rest -= floatValue(of(fs))
			}
		}
	}
	for i := range c.Stats.VolumeStats {
		if v := &c.Stats.VolumeStats[i]; isLocal(c.Pod, v.Name) {
			rest -= floatValue(of(&v.FsStats))
		}
	}
	return max(rest, 0)
}

// isLocal reports whether the files of a volume are on the node's disk.
func isLocal(p *v1.Pod, name string) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Name == name {
			return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault ||
				v.HostPath != nil || v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
		}
	}
	return false
}
