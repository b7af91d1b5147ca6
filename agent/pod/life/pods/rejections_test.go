package pods

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
)

// TestFindRejections checks which pods of a manifest the node would reject, and that the question changes no decision.
func TestFindRejections(t *testing.T) {
	w := newWorld(t) // 4 CPUs
	w.setPods(t, desired.Local, aPod("running", "2", 80))
	w.admit(t, "running", "admitted")
	next := aPod("running", "4", 80)
	next.UID = "next"
	for name, tt := range map[string]struct {
		pods []*v1.Pod
		want []string
	}{
		"the first pod leaves no room":  {[]*v1.Pod{aPod("a", "2", 0), aPod("b", "1", 0), aPod("c", "0", 0)}, []string{"", "OutOfcpu: ", ""}},
		"a port is in use":              {[]*v1.Pod{aPod("a", "1", 80), aPod("b", "1", 81)}, []string{"NodePorts: ", ""}},
		"a rejected pod takes no room":  {[]*v1.Pod{aPod("a", "3", 0), aPod("b", "2", 0)}, []string{"OutOfcpu: ", ""}},
		"a pod replaces its former one": {[]*v1.Pod{next}, []string{""}},
		"the pod exists":                {[]*v1.Pod{aPod("running", "9", 80)}, []string{""}},
		"a critical pod preempts":       {[]*v1.Pod{critical(aPod("a", "4", 0))}, []string{""}},
	} {
		got := w.FindRejections(tt.pods)
		if !slices.EqualFunc(got, tt.want, func(g, want string) bool { return strings.HasPrefix(g, want) && (g == "") == (want == "") }) {
			t.Errorf("%s: %q, not %q", name, got, tt.want)
		}
	}
	if len(w.verdicts) != 1 {
		t.Errorf("verdicts %+v", w.verdicts)
	}
	w.checkDecision(t, "running", "admitted")
	w.checkEvents(t)
}
