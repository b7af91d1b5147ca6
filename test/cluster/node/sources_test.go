package node

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// A newer is a node that follows a ConfigMap and an archive.
type newer struct {
	*configured
	r       *machine.Releaser
	archive string
	pods    map[string]*corev1.Pod
}

// prepare writes the release of a version to a file. The returned function moves this file to the archive's path. The move takes no time.
// The node reads the archive when it starts.
func (n *newer) prepare(version string, program []byte) (release func()) {
	n.t.Helper()
	file := n.Disk + "/prepared.tar.gz"
	n.r.Release(file, version, program)
	return func() {
		n.t.Helper()
		for _, end := range []string{".release", ""} {
			if err := os.Rename(file+end, n.archive+end); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

// release moves the release of a version to the archive's path.
func (n *newer) release(version string, program []byte) { n.t.Helper(); n.prepare(version, program)() }

// trials returns the results of all trials: a version or "configuration", with " failed" after a failure.
func (n *newer) trials() (all []string) {
	s, ok := n.shows()
	if !ok {
		return nil
	}
	for _, h := range s.History {
		what := "configuration"
		if strings.HasPrefix(h.ID, "islet-") {
			what, _, _ = strings.Cut(strings.TrimPrefix(h.ID, "islet-"), "-")
		}
		if h.Why != "" {
			what += " failed"
		}
		all = append(all, what)
	}
	return all
}

// both waits until the given version runs with the given configuration and no trial is left. It checks that the given trials have ended, in
// any order, and that no pod has restarted.
func (n *newer) both(when, version, kubelet string, trials ...string) {
	n.t.Helper()
	n.Await(fmt.Sprintf("%s: islet %s with %s", when, version, kubelet), func() bool {
		out, _ := n.Try("status")
		s, ok := n.shows()
		return ok && strings.Contains(out, "islet "+version+",") && strings.Contains(s.Active.Kubelet, kubelet) &&
			s.Active == s.LastKnownGood && !s.Trying && s.Assigned == nil
	})
	got := n.trials()
	slices.Sort(got)
	if slices.Sort(trials); !slices.Equal(got, trials) {
		n.t.Errorf("%s: trials %q, not %q", when, got, trials)
	}
	n.c.AwaitNode(n.t, n.Name, "to be ready "+when, cluster.NodeReady)
	unchanged(n.t, n.c, n.pods)
}

// restart kills the agent and starts it again. The new agent reads its sources at once. The function does not wait until the agent
// responds, because a trial may begin immediately.
func (n *newer) restart() {
	n.t.Helper()
	n.Kill()
	n.LaunchAgent(n.Flags()...)
}

// TestTwoSources checks that a node applies changes from its ConfigMap and its archive one after the other in any order. A failure of one
// source must not affect the other. A configuration from a command on the node must stay in use until the ConfigMap changes.
func TestTwoSources(t *testing.T) {
	r := machine.NewReleaser(t)
	f, before := followWith(t, "3s", func(n *cluster.Node) string {
		n.OwnProgram()
		return fmt.Sprintf("update: {keys: [%s], archive: %s/islet.tar.gz, every: 24h}\n", r.Public, n.Disk)
	})
	n := &newer{configured: f, r: r, archive: f.Disk + "/islet.tar.gz", pods: before}
	next := n.prepare("9.1.0", r.BuildVersion("9.1.0"))
	n.send("", "maxPods: 37\n")
	n.c.Kubectl(t, "annotate", "node", n.Name, "islet.dev/config-map="+n.Name+"-config")
	n.onTrial()
	next() // the agent reads the release when it starts after the trial
	n.both("a version during the trial of a ConfigMap", "9.1.0", "maxPods: 37", "configuration", "9.1.0")

	n.release("9.2.0", append(r.BuildFailing(), "\n9.2.0 hang"...))
	n.restart()
	n.tries("9.2.0")
	n.send("", "maxPods: 38\n")
	n.both("a ConfigMap during the trial of a version", "9.1.0", "maxPods: 38", "configuration", "9.1.0", "9.2.0 failed", "configuration")

	n.send("", "maxPods: 39\nportt: 1\n") // together with the broken version
	n.condition(corev1.ConditionFalse, "portt")
	n.restart()
	all := []string{"configuration", "9.1.0", "9.2.0 failed", "configuration", "configuration failed"} // the last one was rejected
	n.both("two sources that are broken", "9.1.0", "maxPods: 38", all...)
	n.condition(corev1.ConditionFalse, "portt")
	if out, _ := n.Try("status"); !strings.Contains(out, "9.2.0") || !strings.Contains(out, "portt") {
		t.Errorf("status does not contain both problems: %s", out)
	}
	if err := os.Remove(n.archive); err != nil {
		t.Fatal(err)
	}

	n.Write("mine.yaml", strings.Replace(n.files, "\n", "\nmaxPods: 40\n", 1))
	n.Islet("config", "apply", n.Disk+"/mine.yaml")
	n.restart()
	n.Await("the node to report the applied configuration", func() bool {
		out, _ := n.Try("config", "show")
		return strings.Contains(out, "used again when it changes")
	})
	n.both("a person's configuration", "9.1.0", "maxPods: 40", append(all, "configuration")...)
	n.send("", "maxPods: 41\n")
	n.both("a ConfigMap that changed", "9.1.0", "maxPods: 41", append(all, "configuration", "configuration")...)
}

// tries waits until a version is on trial. Its program does not respond, so the function reads the stored state.
func (n *newer) tries(version string) {
	n.t.Helper()
	n.Await("the trial of "+version, func() bool {
		b, err := os.ReadFile(n.Disk + "/state/configuration.json")
		return err == nil && strings.Contains(string(b), `"trial":{`) && strings.Contains(string(b), `"version":"`+version+`"`)
	})
}
