package node

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestDebug checks that islet debug runs a command of another image in a pod of a standalone node. The command must see the pod's network
// and the processes of the target. The container must survive a restart of the agent, and must end with its pod.
func TestDebug(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/one.yaml", manifest("one", "", "sleep"))
	m.StartAgent()
	m.WaitReady("one-edge")
	debug := func(name string, args ...string) (string, int) {
		return m.Try(append([]string{"debug", "one-edge", "--image=" + machine.Image, "--image-pull-policy=Never", "--attach", "-c", name}, args...)...)
	}
	if out, code := debug("host", "--", "/podtool", "cat", "/etc/hostname"); code != 0 || !strings.HasSuffix(out, "one-edge\n") {
		t.Errorf("code %d: %s", code, out)
	}
	out, code := debug("processes", "--target=c", "--", "/podtool", "cat", "/proc/1/cmdline")
	if code != 0 || !strings.Contains(out, "/podtool\x00sleep") {
		t.Errorf("code %d: %q", code, out)
	}
	if out, code := debug("fails", "--", "/podtool", "exit", "3"); code != 3 {
		t.Errorf("code %d: %s", code, out)
	}
	// Standard input has no data here, and the container may end before its streams are connected.
	if out, code := debug("input", "-i", "--", "/podtool", "cat"); code != 0 {
		t.Errorf("code %d: %s", code, out)
	}
	m.Islet("wait", `--for=jsonpath={.status.ephemeralContainerStatuses[?(@.name=="input")].state.terminated.exitCode}=0`, "one-edge")
	if out, code := debug("early", "-i", "--", "/podtool", "cat", "/etc/hostname"); code != 0 || !strings.HasSuffix(out, "one-edge\n") {
		t.Errorf("code %d: %q", code, out)
	}
	for _, flag := range []string{"--quiet", "-i"} {
		if out, code := debug("none"+strings.Trim(flag, "-"), flag, "--", "/none"); code != 128 || !strings.Contains(out, "/none") {
			t.Errorf("%s with a missing program: code %d, %q", flag, code, out)
		}
	}
	if out, code := m.Try("debug", "one-edge", "--image=localhost/none:1", "--image-pull-policy=Never", "--attach"); code != 1 ||
		!strings.Contains(out, "ErrImageNeverPull") {
		t.Errorf("code %d: %s", code, out)
	}
	m.Islet("debug", "one-edge", "--image="+machine.Image, "--image-pull-policy=Never", "-c", "stays", "--", "/podtool", "sleep")
	runs := func() bool {
		_, code := m.Try("exec", "one-edge", "-c", "stays", "--", "/podtool", "cat", "/etc/hostname")
		return code == 0
	}
	m.Await("the container to run", runs)
	m.Kill()
	m.StartAgent()
	m.WaitReady("one-edge")
	if !runs() {
		t.Error("after a restart of the agent the container does not run")
	}
	m.Remove("manifests/one.yaml")
	m.WaitReady()
}
