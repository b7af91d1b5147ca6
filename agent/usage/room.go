package usage

import stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

// A room is memory for what a summary has of one pod.
type room struct {
	numbers    slab[uint64]
	cpus       slab[stats.CPUStats]
	memories   slab[stats.MemoryStats]
	swaps      slab[stats.SwapStats]
	ios        slab[stats.IOStats]
	stalls     slab[stats.PSIStats]
	networks   slab[stats.NetworkStats]
	files      slab[stats.FsStats]
	processes  slab[stats.ProcessStats]
	containers []stats.ContainerStats
	interfaces []stats.InterfaceStats
}

// reset takes back all that was given.
func (r *room) reset() {
	r.numbers.used, r.cpus.used, r.memories.used, r.swaps.used, r.ios.used, r.stalls.used = 0, 0, 0, 0, 0, 0
	r.networks.used, r.files.used, r.processes.used = 0, 0, 0
}

// A slab is memory for values of one kind, some of which are made at once.
type slab[T any] struct {
	all  []T
	used int
}

// some is how many: a pod with one container needs fewer.
const some = 12

// give gives memory that has v.
func (s *slab[T]) give(v T) *T {
	if s.used == len(s.all) {
		s.all, s.used = make([]T, some), 0
	}
	p := &s.all[s.used]
	s.used++
	*p = v
	return p
}
