package usage

import stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

// An arena is memory for what a summary has of one pod.
type arena struct {
	numbers    slab[uint64]
	cpus       slab[stats.CPUStats]
	memories   slab[stats.MemoryStats]
	swaps      slab[stats.SwapStats]
	ios        slab[stats.IOStats]
	stalls     slab[stats.PSIStats]
	networks   slab[stats.NetworkStats]
	files      slab[stats.FsStats]
	processes  slab[stats.ProcessStats]
	containers []stats.ContainerStats // of all pods since reset, one after another
	interfaces []stats.InterfaceStats
}

// whole is the list of what was appended to a slab since begin; nil: nothing was. Who appends to it
// gets a copy.
func whole[T any](slab []T, begin int) []T {
	if begin == len(slab) {
		return nil
	}
	return slab[begin:len(slab):len(slab)]
}

// reset takes back all that was given.
func (a *arena) reset() {
	a.numbers.used, a.cpus.used, a.memories.used, a.swaps.used, a.ios.used, a.stalls.used = 0, 0, 0, 0, 0, 0
	a.networks.used, a.files.used, a.processes.used = 0, 0, 0
	a.containers, a.interfaces = a.containers[:0], a.interfaces[:0]
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
