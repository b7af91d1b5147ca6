package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/metrics/headroom"
)

// Observations contains the free amount for each signal. Amounts that are unknown are missing.
type Observations map[Signal]headroom.Amount

// newObservations returns the observations of all signals.
func newObservations(r headroom.Room) Observations {
	out := Observations{}
	for s, a := range map[Signal]headroom.Amount{
		Memory: r.Memory, PodsMemory: r.Pods, NodeFs: r.Node.Bytes, NodeInodes: r.Node.Inodes,
		ImageFs: r.Image.Bytes, ImageInodes: r.Image.Inodes,
		ContainerFs: r.Container.Bytes, ContainerInodes: r.Container.Inodes, PIDs: r.PIDs,
	} {
		if a.Total > 0 {
			out[s] = a
		}
	}
	return out
}

// isBelow reports whether the free amount is less than the threshold's value. If reclaim is true, it adds the minimum
// reclaim to the value.
func (o Observations) isBelow(t Threshold, reclaim bool) bool {
	a, ok := o[t.Signal]
	want := t.Value.units(a.Total)
	if reclaim {
		want += t.Reclaim.units(a.Total)
	}
	return ok && a.Free < want
}

// missingAmount returns how much more must be freed until an active threshold is no longer met, in the signal's units.
func (o Observations) missingAmount(t Threshold) float64 {
	a := o[t.Signal]
	if want := t.Value.units(a.Total) + t.Reclaim.units(a.Total); want > a.Free {
		return float64(want - a.Free)
	}
	return 0
}

// stillMet returns the thresholds of the list met that have not ended. A threshold ends when its value plus the
// minimum reclaim is free.
func (o Observations) stillMet(met []Threshold) []Threshold {
	return slices.DeleteFunc(slices.Clone(met), func(t Threshold) bool { return !o.isBelow(t, true) })
}

// Bounds of the interval between evaluations.
const (
	minInterval = 10 * time.Second
	maxInterval = time.Minute
)

// maxRates contains the assumed maximum growth of each resource's use per second. For disks, it is the write rate
// of a fast disk. For the other resources, it is the rate at which a fast program creates files, starts processes,
// or allocates memory without a stall.
var maxRates = map[v1.ResourceName]float64{v1.ResourceEphemeralStorage: 100 << 20, inodes: 10_000, pids: 500, v1.ResourceMemory: 100 << 20}

// nextLook returns the time until the earliest moment at which a threshold can be met, within the bounds. While a
// threshold is met, it returns the lower bound. For a memory threshold, it also returns the lower bound in two cases:
// less than twice the threshold is free, or the kernel reports no events.
func nextLook(list []Threshold, o Observations, coverage Coverage) time.Duration {
	left := maxInterval
	for _, t := range list {
		a, ok := o[t.Signal]
		what := t.Signal.signalInfo().resource
		want := t.Value.units(a.Total)
		switch {
		case !ok:
		case a.Free <= want, what == v1.ResourceMemory && (coverage == NoEvents || a.Free < 2*want):
			return minInterval
		case what == v1.ResourceMemory && coverage == UseEvents:
		default:
			left = min(left, time.Duration(float64(a.Free-want)/maxRates[what]*float64(time.Second)))
		}
	}
	return max(left, minInterval)
}
