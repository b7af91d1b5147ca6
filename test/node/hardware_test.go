package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/machine"
)

// theLoop is the number of a loop device that the test creates and removes.
const theLoop = 4712

func askLoop(t *testing.T, verb uint) {
	t.Helper()
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), verb, theLoop); err != nil {
		if verb == unix.LOOP_CTL_ADD {
			t.Skip(err)
		}
		t.Fatal(err)
	}
}

// removeLoop removes the loop device if it is left of an earlier test.
func removeLoop(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(fmt.Sprintf("/dev/loop%d", theLoop)); err == nil {
		askLoop(t, unix.LOOP_CTL_REMOVE)
	}
}

// TestHardware checks that a pod whose user is not root can use a device of the host. The pod starts before the device appears. The device
// disappears and appears again, also while the agent is killed and after a reboot.
func TestHardware(t *testing.T) {
	t.Parallel()
	removeLoop(t) // a test program that was killed has left it
	m := bootMachine(t)
	m.Write("edge.yaml", fmt.Sprintf(`apiVersion: islet.dev/v1alpha1
kind: EdgeConfiguration
cniConfDir: %s/cni
devices:
- {resource: islet.dev/disk, match: [{paths: [/dev/loop%d]}], containerPath: /dev/data0, group: 4711}
`, m.Disk, theLoop))
	m.Write("manifests/two.yaml", manifest("two", "", "count", "100ms")) // root with the default capabilities, which include CAP_MKNOD
	m.Write("manifests/one.yaml", manifest("one", `    resources: {limits: {islet.dev/disk: 1}}
    securityContext: {runAsUser: 1000, runAsGroup: 1000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`, "count", "100ms"))
	m.StartAgent()
	m.WaitPods("the pod to be refused without a device", func(pods map[string]machine.Pod) bool {
		return pods["one-edge"].Status.Reason == "UnexpectedAdmissionError"
	})

	askLoop(t, unix.LOOP_CTL_ADD)
	plugged := true
	t.Cleanup(func() {
		if plugged {
			askLoop(t, unix.LOOP_CTL_REMOVE)
		}
	})
	first := m.WaitReady("one-edge", "two-edge")["one-edge"].Status.ContainerStatuses[0].ContainerID
	opens := func(when string) {
		t.Helper()
		if out, code := m.Try("exec", "one-edge", "--", "/podtool", "open", "/dev/data0"); code != 0 {
			t.Errorf("%s: %s", when, out)
		}
	}
	opens("when it came")
	notGranted(t, m)
	if out := m.Islet("devices"); !strings.Contains(out,
		fmt.Sprintf("virtual-block-loop%d   /dev/loop%[1]d   used    default/one-edge/c", theLoop)) {
		t.Errorf("islet devices:\n%s", out)
	}

	for _, killed := range []bool{false, true} {
		askLoop(t, unix.LOOP_CTL_REMOVE)
		plugged = false
		pod := m.WaitPods("the condition", func(pods map[string]machine.Pod) bool { return plug(pods["one-edge"]) == "False" })["one-edge"]
		if now := pod.Status.ContainerStatuses[0]; now.ContainerID != first || !now.Ready {
			t.Errorf("the container does not continue: %+v", now)
		}
		if killed {
			m.Kill()
		}
		askLoop(t, unix.LOOP_CTL_ADD)
		plugged = true
		if killed {
			m.StartAgent()
		}
		pod = m.WaitPods("a new container", func(pods map[string]machine.Pod) bool {
			pod := pods["one-edge"]
			return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].ContainerID != first && pod.Ready() &&
				plug(pod) != "False"
		})["one-edge"]
		if got := plug(pod); got != "True" && !killed {
			t.Errorf("the condition with the device back is %q", got)
		}
		first = pod.Status.ContainerStatuses[0].ContainerID
		opens("when it was back")
	}

	m.Kill()
	m.PowerOff()
	m.Boot()
	m.StartAgent()
	m.WaitReady("one-edge", "two-edge")
	opens("after a reboot")
	notGranted(t, m)
	m.Remove("manifests/one.yaml")
	m.Remove("manifests/two.yaml")
	m.WaitPods("the pod to be gone", func(pods map[string]machine.Pod) bool { return len(pods) == 0 })
	m.Await("the device to be given back", func() bool { return strings.Contains(m.Islet("devices"), "free") })
}

// notGranted checks that a pod without the device can create its device node but cannot open it, while the host can. The error must be
// EPERM, the error of the device cgroup. A denial because of the mode of the device node would be another error.
func notGranted(t *testing.T, m *machine.Machine) {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", theLoop), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if out, code := m.Try("exec", "two-edge", "--", "/podtool", "node", "/stolen", "b", "7", fmt.Sprint(theLoop)); code != 0 {
		t.Errorf("root with CAP_MKNOD cannot create a device node: %s", out)
	}
	if out, code := m.Try("exec", "two-edge", "--", "/podtool", "open", "/stolen"); code == 0 ||
		!strings.Contains(out, "/stolen: operation not permitted") {
		t.Errorf("open of a device that is not assigned: %d %s", code, out)
	}
	if out, code := m.Try("exec", "two-edge", "--", "/podtool", "open", "/dev/null"); code != 0 {
		t.Errorf("/dev/null: %s", out)
	}
	if out, code := m.Try("exec", "two-edge", "--", "/podtool", "rm", "/stolen"); code != 0 {
		t.Errorf("%s", out)
	}
}

// plug returns the status of the pod's condition DevicesPlugged, or "" without the condition.
func plug(pod machine.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == "islet.dev/DevicesPlugged" {
			return c.Status
		}
	}
	return ""
}
