package eviction

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/demand"
)

// A Candidate is a pod with its figures.
type Candidate struct {
	Pod   *v1.Pod
	Stats *stats.PodStats // nil: nothing of it runs
}

// Disks says which parts of what pods write are on one disk.
type Disks struct{ Image, Container bool } // on the disk of the node, that of volumes and logs

// parts are what of a pod's files a signal is about.
type parts struct{ layers, logs, volumes bool }

// parts of a signal: what is on the disk that it looks at.
func (d Disks) parts(s Signal) parts {
	onNode := parts{layers: d.Container, logs: true, volumes: true}
	switch s {
	case NodeFs, NodeInodes:
		return onNode
	case ImageFs, ImageInodes:
		if d.Image {
			return onNode
		}
		return parts{layers: !d.Container}
	default: // of containers
		if d.Container {
			return onNode
		}
		return parts{layers: true}
	}
}

// fairPart of what is missing is the least that a pod is evicted for on a disk, and a pod of
// the node's own for anything.
const fairPart = .1

// The least that is taken to be missing on a disk: a hundredth of the threshold, and no less than
// this. A disk that others fill bit by bit lacks next to nothing each time that it is looked at.
const (
	leastPart   = .01
	leastBytes  = 10 << 20
	leastInodes = 1000
)

// worth is what a threshold's pods are measured against: what is missing, in the units of its
// signal, on a disk at least so much that an eviction is worth it.
func (o Observations) worth(t Threshold) float64 {
	missing := o.missing(t)
	if !t.onDisk() {
		return missing
	}
	least := float64(leastBytes)
	if t.Signal.meaning().resource == inodes {
		least = leastInodes
	}
	return max(missing, float64(t.Value.of(o[t.Signal].Total))*leastPart, least)
}

// least is what a pod must have on a disk to be evicted, of which the candidates have used each:
// a fair part of what is missing. Where none has that, but all together would make up for it, it
// is a fair part of what the largest has.
func least(used []float64, missing float64) float64 {
	sum, largest := 0.0, 0.0
	for _, u := range used {
		sum, largest = sum+u, max(largest, u)
	}
	if sum >= missing {
		return min(missing, largest) * fairPart
	}
	return missing * fairPart
}

// Rank puts those who may be evicted for a threshold in order, the first to go first:
// those that use more than they asked for, of these the ones with the lower priority, and
// then those that use the most beyond it. For processes there are no requests. Pods of the
// node's own come after all others, and only those that have a fair part of what is missing:
// nobody could move them to another node, and the end of the others would mend nothing. On a
// disk that holds for all pods: the end of a small pod does not free what others fill. A pod
// that has nothing running comes last. For memory and processes it is left out, for its end
// would give back none.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#pod-selection-for-kubelet-eviction
func Rank(list []Candidate, s Signal, d Disks, missing float64) []Candidate {
	type place struct {
		Candidate
		exceeds  bool
		priority int32
		beyond   float64
	}
	what := s.meaning().resource
	onDisk := s.meaning().condition == v1.NodeDiskPressure
	fair := 0.0
	if onDisk {
		var all []float64
		for _, c := range list {
			if !demand.System(c.Pod) {
				all = append(all, used(c, s, d))
			}
		}
		fair = least(all, missing)
	}
	var out []place
	for _, c := range list {
		if demand.System(c.Pod) || c.Stats == nil && (what == v1.ResourceMemory || what == pids) {
			continue
		}
		p := place{Candidate: c}
		if c.Pod.Spec.Priority != nil {
			p.priority = *c.Pod.Spec.Priority
		}
		p.beyond = used(c, s, d)
		if demand.Own(c.Pod) && p.beyond < missing*fairPart || onDisk && (p.beyond == 0 || p.beyond < fair) {
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
	slices.SortStableFunc(out, func(a, b place) int {
		return cmp.Or(first(a.Stats != nil, b.Stats != nil), first(!demand.Own(a.Pod), !demand.Own(b.Pod)), first(a.exceeds, b.exceeds),
			cmp.Compare(a.priority, b.priority), cmp.Compare(b.beyond, a.beyond), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	ranked := make([]Candidate, len(out))
	for i := range out {
		ranked[i] = out[i].Candidate
	}
	return ranked
}

// first puts what is so before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// used is what a pod has of what a signal is on.
func used(c Candidate, s Signal, d Disks) float64 {
	st := c.Stats
	if st == nil {
		return 0
	}
	switch s.meaning().resource {
	case v1.ResourceMemory:
		if st.Memory == nil {
			return 0
		}
		return number(st.Memory.WorkingSetBytes)
	case pids:
		if st.ProcessStats == nil {
			return 0
		}
		return number(st.ProcessStats.ProcessCount)
	case inodes:
		return total(c, d.parts(s), func(fs *stats.FsStats) *uint64 { return fs.InodesUsed })
	default:
		return total(c, d.parts(s), bytesOf)
	}
}

func bytesOf(fs *stats.FsStats) *uint64 { return fs.UsedBytes }

func number(n *uint64) float64 {
	if n == nil {
		return 0
	}
	return float64(min(*n, math.MaxInt64))
}

// total adds up what of a pod's files is in parts.
func total(c Candidate, in parts, of func(*stats.FsStats) *uint64) (sum float64) {
	add := func(fs *stats.FsStats, yes bool) {
		if yes && fs != nil {
			sum += number(of(fs))
		}
	}
	for i := range c.Stats.Containers {
		add(c.Stats.Containers[i].Rootfs, in.layers)
		add(c.Stats.Containers[i].Logs, in.logs)
	}
	for i := range c.Stats.VolumeStats {
		v := &c.Stats.VolumeStats[i]
		add(&v.FsStats, in.volumes && local(c.Pod, v.Name))
	}
	if in.volumes {
		sum += apart(c, of)
	}
	return sum
}

// apart is what a pod has on the node's disk that is neither of a container nor of a volume: its
// /etc/hosts, termination logs, logs of containers that are gone.
func apart(c Candidate, of func(*stats.FsStats) *uint64) float64 {
	if c.Stats.EphemeralStorage == nil {
		return 0
	}
	rest := number(of(c.Stats.EphemeralStorage))
	for i := range c.Stats.Containers {
		for _, fs := range []*stats.FsStats{c.Stats.Containers[i].Rootfs, c.Stats.Containers[i].Logs} {
			if fs != nil {
				rest -= number(of(fs))
			}
		}
	}
	for i := range c.Stats.VolumeStats {
		if v := &c.Stats.VolumeStats[i]; local(c.Pod, v.Name) {
			rest -= number(of(&v.FsStats))
		}
	}
	return max(rest, 0)
}

// local reports whether a volume of that name is files of the pod's own on the node's disk.
func local(p *v1.Pod, name string) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Name == name {
			return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault ||
				v.HostPath != nil || v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
		}
	}
	return false
}
