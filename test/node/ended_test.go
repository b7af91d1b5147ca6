package node

import (
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestEndedStaysEnded checks that ended containers do not run again after a restart of the agent or the machine. If a container was
// running at a power failure, it must restart only if its restart policy allows this, as under a kubelet.
func TestEndedStaysEnded(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	policy := func(p string) string { return "  restartPolicy: " + p + "\n" }
	phases := map[string]string{"done-edge": "Succeeded", "failed-edge": "Failed", "late-edge": "Failed", "once-edge": "Running", "until-edge": "Running"}
	for name, text := range map[string]string{
		"done":   manifest("done", policy("OnFailure"), "exit", "0"),
		"failed": manifest("failed", policy("Never"), "exit", "3"),
		"late":   manifest("late", "  activeDeadlineSeconds: 1\n", "sleep"),
		"once":   manifest("once", policy("Never"), "sleep"),
		"until":  manifest("until", policy("OnFailure"), "sleep"),
	} {
		m.Write("manifests/"+name+".yaml", text)
	}
	m.StartAgent()
	wait := func(what string) map[string]string {
		return containers(m.WaitPods(what, func(pods map[string]machine.Pod) bool {
			for name, phase := range phases {
				if p := pods[name]; p.Status.Phase != phase || p.Ready() != (phase == "Running") {
					return false
				}
			}
			return len(pods) == len(phases)
		}))
	}
	before := wait("pods to end")
	m.Stop()
	m.StartAgent()
	if n := changed(before, m.Pods()); n != 0 {
		t.Errorf("%d pods were replaced: %v", n, m.Pods())
	}
	wait("pods to be as they were")
	phases["once-edge"] = "Failed"
	for range 2 {
		m.PowerOff()
		m.Boot()
		m.StartAgent()
		m.WaitPods("the pod that may to run again", func(pods map[string]machine.Pod) bool {
			return changed(map[string]string{"until-edge": before["until-edge"]}, pods) == 1
		})
		now := wait("the others to have ended")
		delete(before, "until-edge")
		if n := changed(before, m.Pods()); n != 0 {
			t.Errorf("%d pods were replaced: %v, then %v", n, before, now)
		}
		before = now
	}
}
