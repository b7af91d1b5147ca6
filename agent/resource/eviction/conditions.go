package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

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
