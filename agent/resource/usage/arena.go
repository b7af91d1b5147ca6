package usage

import stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

// An arena allocates the values for one pod in a summary.
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
	containers []stats.ContainerStats // the containers of all pods since the last reset
	interfaces []stats.InterfaceStats
}

// sliceSince returns the elements that were appended to a slice after the index begin, or nil if there are none. A
// caller that appends to the result copies the elements, so the slab does not change.
func sliceSince[T any](slab []T, begin int) []T {
	if begin == len(slab) {
		return nil
	}
	return slab[begin:len(slab):len(slab)]
}

// reset makes all memory of the arena available for reuse.
func (a *arena) reset() {
	a.numbers.used, a.cpus.used, a.memories.used, a.swaps.used, a.ios.used, a.stalls.used = 0, 0, 0, 0, 0, 0
	a.networks.used, a.files.used, a.processes.used = 0, 0, 0
	a.containers, a.interfaces = a.containers[:0], a.interfaces[:0]
}

// A slab allocates values of one type in blocks.
type slab[T any] struct {
	values []T
	used   int
}

// slabSize is the number of values in a block. A pod with one container needs fewer values of each type than that.
const slabSize = 12

// put returns a pointer to a copy of v.
func (s *slab[T]) put(v T) *T {
	if s.used == len(s.values) {
		s.values, s.used = make([]T, slabSize), 0
	}
	p := &s.values[s.used]
	s.used++
	*p = v
	return p
}
