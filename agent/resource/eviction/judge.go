package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/metrics/room"
)

// Observations are what is free, by signal. What is not known is not in it.
type Observations map[Signal]room.Amount

// observe takes what thresholds look at.
func observe(r room.Room) Observations {
	out := Observations{}
	for s, a := range map[Signal]room.Amount{
		Memory: r.Memory, PodsMemory: r.Pods, NodeFs: r.Node.Bytes, NodeInodes: r.Node.Inodes, ImageFs: r.Image.Bytes, ImageInodes: r.Image.Inodes,
		ContainerFs: r.Container.Bytes, ContainerInodes: r.Container.Inodes, PIDs: r.PIDs,
	} {
		if a.Total > 0 {
			out[s] = a
		}
	}
	return out
}

// below reports whether less is free than a threshold asks for; with reclaim, than it asks
// for once it has counted.
func (o Observations) below(t Threshold, reclaim bool) bool {
	a, ok := o[t.Signal]
	want := t.Value.of(a.Total)
	if reclaim {
		want += t.Reclaim.of(a.Total)
	}
	return ok && a.Free < want
}

// missing is how much more has to be free for a threshold that counted to be met no more, in
// the units of its signal.
func (o Observations) missing(t Threshold) float64 {
	a := o[t.Signal]
	if want := t.Value.of(a.Total) + t.Reclaim.of(a.Total); want > a.Free {
		return float64(want - a.Free)
	}
	return 0
}

// A key names a threshold: of each signal there is one of either kind.
type key struct {
	signal Signal
	soft   bool
}

func (t Threshold) key() key { return key{t.Signal, t.Soft} }

// A State is what has been observed so far. The zero value has observed nothing.
type State struct {
	since map[key]time.Time                  // since when thresholds are met
	acted map[key]bool                       // that counted the last time: their Reclaim does too
	seen  map[v1.NodeConditionType]time.Time // when conditions were last met
}

// A Verdict is what follows from one look.
type Verdict struct {
	Conditions []v1.NodeConditionType // that hold, sorted
	Act        []Threshold            // that count now, the first one first
	Wake       time.Time              // when it may be another one though nothing changes; zero: never
}

// saw takes that a condition was met at a time, of which no observation told.
func (s *State) saw(c v1.NodeConditionType, at time.Time) {
	if s.seen == nil {
		s.seen = map[v1.NodeConditionType]time.Time{}
	}
	if at.After(s.seen[c]) {
		s.seen[c] = at
	}
}

// Judge says what follows from observations. Conditions hold for as long as transition after
// they were last met.
func (s *State) Judge(list []Threshold, o Observations, transition time.Duration, now time.Time) (v Verdict) {
	since, acted := map[key]time.Time{}, map[key]bool{}
	if s.seen == nil {
		s.seen = map[v1.NodeConditionType]time.Time{}
	}
	met := map[v1.NodeConditionType]bool{}
	for _, t := range list {
		if !o.below(t, s.acted[t.key()]) {
			continue
		}
		at, before := s.since[t.key()]
		if !before || at.After(now) {
			at = now
		}
		since[t.key()] = at
		c := t.Signal.meaning().condition
		s.seen[c], met[c] = now, true
		if due := at.Add(t.Grace); now.Before(due) {
			v.wake(due)
			continue
		}
		acted[t.key()] = true
		v.Act = append(v.Act, t)
	}
	s.since, s.acted = since, acted
	for c, at := range s.seen {
		end := at.Add(transition)
		if !met[c] && !now.Before(end) {
			delete(s.seen, c)
			continue
		}
		if !met[c] {
			v.wake(end)
		}
		v.Conditions = append(v.Conditions, c)
	}
	slices.Sort(v.Conditions)
	return v
}

func (v *Verdict) wake(at time.Time) {
	if v.Wake.IsZero() || at.Before(v.Wake) {
		v.Wake = at
	}
}

// still are the thresholds that are met, with what is to be reclaimed beyond them.
func (o Observations) still(met []Threshold) []Threshold {
	return slices.DeleteFunc(slices.Clone(met), func(t Threshold) bool { return !o.below(t, true) })
}

// Times between two looks that nothing asked for.
const (
	soonest = 10 * time.Second
	latest  = time.Minute
)

// speeds are how fast things may be used up, a second: what a fast disk takes, and what a
// fast program makes in files, starts in processes, or takes of memory without a stall.
var speeds = map[v1.ResourceName]float64{v1.ResourceEphemeralStorage: 100 << 20, inodes: 10_000, pids: 500, v1.ResourceMemory: 100 << 20}

// pause is how long nothing needs to be looked at: until the first threshold could be met,
// within bounds. While one is met it is the least. Memory that the kernel tells of is looked at
// as well when not even twice as much is left.
func pause(list []Threshold, o Observations, told Tells) time.Duration {
	left := latest
	for _, t := range list {
		a, ok := o[t.Signal]
		what := t.Signal.meaning().resource
		want := t.Value.of(a.Total)
		switch {
		case !ok:
		case a.Free <= want, what == v1.ResourceMemory && (told == OfNothing || a.Free < 2*want):
			return soonest
		case what == v1.ResourceMemory && told == OfUse:
		default:
			left = min(left, time.Duration(float64(a.Free-want)/speeds[what]*float64(time.Second)))
		}
	}
	return max(left, soonest)
}
