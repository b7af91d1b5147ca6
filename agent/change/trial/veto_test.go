package trial

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A stage is a node with pods that performs trials.
type stage struct {
	*testing.T
	r      Record
	facts  Facts
	limits bool // the configuration on trial changes the eviction thresholds
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, facts: Facts{
		Pods: map[string]bool{"evil": true, "other": true, "good": true}, Known: map[string]bool{"evil": true, "other": true, "good": true},
		Names: map[string]string{"evil": "default/evil"}, Probes: map[string]string{"evil": ProbeNetwork, "other": ProbeNetwork, "good": ProbeNetwork},
	}}
	s.r.takes(program("2.0.0"), false)
	return s
}

// trial performs a trial in which the given pods do not become ready. It returns the guard's verdict at the deadline.
func (s *stage) trial(down ...string) (v Verdict, why string) {
	s.Helper()
	if !s.r.Begin(s.facts, "boot", noon) {
		s.Fatal("no trial began")
	}
	j := s.r.Judge(time.Minute, s.limits)
	f := s.facts
	f.Pods = map[string]bool{}
	for uid := range s.facts.Pods {
		f.Pods[uid] = !slices.Contains(down, uid)
	}
	f.Pressure = slices.DeleteFunc(slices.Clone(down), func(d string) bool { return !strings.HasSuffix(d, "Pressure") })
	j.Evaluate(noon, f)
	v, why = j.Evaluate(noon.Add(time.Minute), f)
	switch blame := j.BlockingCauses(f); {
	case v == Good:
		s.r.Accept(noon)
	case len(blame) > 0:
		s.r.Veto(why, blame, noon)
	default:
		s.r.FailTrial(why, false, noon)
	}
	return v, why
}

// TestVeto checks that a trial fails if pods are not ready. The error names these pods, and a repeated trial ignores them.
func TestVeto(t *testing.T) {
	s := newStage(t)
	if v, why := s.trial("evil"); v == Good || !strings.Contains(why, "1 pods are not ready that were: default/evil") ||
		!s.r.HasProgram() || s.r.FailedProgram != nil {
		t.Fatalf("the first trial: %v, %s, %+v", v, why, s.r)
	}
	if h := s.r.History; len(h) != 1 || !h[0].Undecided || !strings.Contains(h[0].Why, "the trial is repeated without regard to these pods and pressures") {
		t.Errorf("history: %+v", h)
	}
	if v, why := s.trial("evil"); v != Good || !s.r.Updated() || s.r.Vetoed != nil {
		t.Errorf("the second trial: %v, %s", v, why)
	}

	s = newStage(t) // the two pods are unready alternately
	s.trial("evil")
	if v, _ := s.trial("other"); v == Good || !s.r.HasProgram() || !slices.Equal(s.r.Vetoed.By, []string{"evil", "other"}) {
		t.Errorf("after the second trial: %v, %+v", v, s.r.Vetoed)
	}
	if v, why := s.trial("evil", "other"); v != Good {
		t.Errorf("the third trial: %v, %s", v, why)
	}

	s = newStage(t) // node pressures that pods cause count like unready pods
	if v, why := s.trial("DiskPressure"); v != Bad || !strings.Contains(why, "DiskPressure") || !s.r.HasProgram() {
		t.Errorf("a pressure: %v, %s", v, why)
	}
	if v, why := s.trial("DiskPressure"); v != Good {
		t.Errorf("a pressure, again: %v, %s", v, why)
	}
}

// TestNoVeto checks that the first trial is not repeated if the change on trial may have caused the problem.
func TestNoVeto(t *testing.T) {
	for name, how := range map[string]func(s *stage) (Verdict, string){
		"no pod is ready": func(s *stage) (Verdict, string) { return s.trial("evil", "other", "good") },
		"no other by network": func(s *stage) (Verdict, string) {
			s.facts.Probes = map[string]string{"evil": ProbeNetwork, "good": ProbeExec}
			return s.trial("evil")
		},
		"limits of pressures": func(s *stage) (Verdict, string) { s.limits = true; return s.trial("MemoryPressure") },
		"the node too": func(s *stage) (Verdict, string) {
			s.r.Begin(s.facts, "boot", noon)
			j := s.r.Judge(time.Minute, false)
			f := s.facts
			f.Pods, f.Reach = map[string]bool{"evil": false, "other": true, "good": true}, "refused"
			v, why := j.Evaluate(noon, f)
			if blame := j.BlockingCauses(f); len(blame) > 0 {
				s.Errorf("%v are blamed", blame)
			}
			s.r.FailTrial(why, false, noon)
			return v, why
		},
	} {
		s := newStage(t)
		if v, why := how(s); v == Good || why == "" || s.r.HasProgram() || s.r.FailedProgram == nil {
			t.Errorf("%s: %v, %s", name, v, why)
		}
	}
}

// TestFlaps checks that a trial does not succeed while a pod is alternately ready and unready. The error names the pod even if it is ready
// at the deadline.
func TestFlaps(t *testing.T) {
	s := newStage(t)
	s.r.Begin(s.facts, "boot", noon)
	j := s.r.Judge(time.Minute, false)
	bad := s.facts
	bad.Pods = map[string]bool{"evil": false, "other": true, "good": true}
	for i := range 20 {
		j.Evaluate(noon.Add(time.Duration(2*i)*time.Second), s.facts)
		j.Evaluate(noon.Add(time.Duration(2*i+1)*time.Second), bad)
	}
	if v, _ := j.Evaluate(noon.Add(50*time.Second), s.facts); v != Waiting || !slices.Equal(j.BlockingCauses(s.facts), []string{"evil"}) {
		t.Errorf("%v, blamed pods %v", v, j.BlockingCauses(s.facts))
	}
}

// TestDespitePods checks that a trial ignores all pods if an operator requested that. It succeeds even if no pod is ready.
func TestDespitePods(t *testing.T) {
	s := newStage(t)
	c := program("2.0.0")
	c.DespitePods = true
	if !s.r.takes(c, true) {
		t.Fatal("the request is rejected")
	}
	if v, why := s.trial("evil", "other", "good", "DiskPressure"); v != Good {
		t.Errorf("%v: %s", v, why)
	}
}
