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

// A key identifies a threshold. Each signal has at most one soft and one hard threshold.
type key struct {
	signal Signal
	soft   bool
}

func (t Threshold) key() key { return key{t.Signal, t.Soft} }

// A State is the history of the observations. The zero value is ready to use.
type State struct {
	metSince  map[key]time.Time                  // since when each threshold is met
	wasActive map[key]bool                       // thresholds that were active at the last evaluation; their Reclaim must also be free
	seen      map[v1.NodeConditionType]time.Time // when each condition was last met
}

// A Verdict is the result of one evaluation.
type Verdict struct {
	Conditions []v1.NodeConditionType // sorted
	Act        []Threshold            // the active thresholds, in the order in which they are acted on
	Wake       time.Time              // when the verdict may change even without a new observation; zero means never
}

// markMet records that a condition was met, without an observation.
func (s *State) markMet(c v1.NodeConditionType, at time.Time) {
	if s.seen == nil {
		s.seen = map[v1.NodeConditionType]time.Time{}
	}
	if at.After(s.seen[c]) {
		s.seen[c] = at
	}
}

// Evaluate evaluates observations. A condition ends when it has not been met for the given transition time.
func (s *State) Evaluate(list []Threshold, o Observations, transition time.Duration, now time.Time) (v Verdict) {
	since, acted := map[key]time.Time{}, map[key]bool{}
	if s.seen == nil {
		s.seen = map[v1.NodeConditionType]time.Time{}
	}
	met := map[v1.NodeConditionType]bool{}
	for _, t := range list {
		if !o.isBelow(t, s.wasActive[t.key()]) {
			continue
		}
		at, before := s.metSince[t.key()]
		if !before || at.After(now) {
			at = now
		}
		since[t.key()] = at
		c := t.Signal.signalInfo().condition
		s.seen[c], met[c] = now, true
		if due := at.Add(t.Grace); now.Before(due) {
			v.wakeAt(due)
			continue
		}
		acted[t.key()] = true
		v.Act = append(v.Act, t)
	}
	s.metSince, s.wasActive = since, acted
	for c, at := range s.seen {
		end := at.Add(transition)
		if !met[c] && !now.Before(end) {
			delete(s.seen, c)
			continue
		}
		if !met[c] {
			v.wakeAt(end)
		}
		v.Conditions = append(v.Conditions, c)
	}
	slices.Sort(v.Conditions)
	return v
}

func (v *Verdict) wakeAt(at time.Time) {
	if v.Wake.IsZero() || at.Before(v.Wake) {
		v.Wake = at
	}
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
