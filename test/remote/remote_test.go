package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

func TestMain(m *testing.M) {
	machine.Main()
	os.Exit(m.Run())
}

// remote is the agent's flag for containerd.
const remote = "--container-runtime-endpoint=" + machine.Endpoint

// pod returns a pod with one container.
func pod(name, more string, args ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 5\n  containers:\n  - {name: c, image: %q, imagePullPolicy: Never, args: [\"%s\"]%s}\n",
		name, machine.Image, strings.Join(args, `", "`), more)
}

// start boots a machine with containerd for an agent that uses it.
func start(t *testing.T, dir string) (*machine.Machine, *machine.Containerd) {
	t.Helper()
	m := machine.New(t, "edge")
	c := m.NewContainerd(dir)
	m.Boot()
	c.Start()
	c.Import()
	return m, c
}

// TestPods checks that pods run and that commands on them work.
func TestPods(t *testing.T) {
	machine.EachContainerd(t, func(t *testing.T, dir string) {
		m, _ := start(t, dir)
		m.Write("manifests/count.yaml", pod("count", "", "count", "100ms"))
		m.StartAgent(remote)
		m.WaitReady("count-edge")
		if out, _ := m.Try("status"); !strings.Contains(out, "at "+machine.Endpoint) {
			t.Errorf("status:\n%s", out)
		}
		if out, code := m.Try("exec", "count-edge", "--", "/podtool", "exit", "3"); code != 3 {
			t.Errorf("exec: exit code %d, %s", code, out)
		}
		m.Await("the log to have two lines", func() bool { return strings.HasPrefix(m.Islet("logs", "count-edge"), "0\n1\n") })
		if out := m.Islet("top"); !strings.Contains(out, "count-edge") {
			t.Errorf("top:\n%s", out)
		}
		if out, code := m.Try("images", "import", machine.Archive(t)); code == 0 || !strings.Contains(out, "use its own tool") {
			t.Errorf("import: exit code %d, %s", code, out)
		}
		m.Remove("manifests/count.yaml")
		m.WaitReady()
		m.Await("nothing to be left", func() bool { return m.Containers() == 0 })
	})
}

// TestGoes checks that pods continue to run while containerd is not running, even if the agent exits too. No pod may be lost. The agent
// must notice the containers that ended meanwhile.
func TestGoes(t *testing.T) {
	machine.EachContainerd(t, func(t *testing.T, dir string) {
		m, c := start(t, dir)
		m.Write("manifests/a.yaml", pod("a", "", "count", "100ms"))
		m.StartAgent(remote)
		before := m.WaitReady("a-edge")["a-edge"].Status.ContainerStatuses[0]
		c.Kill()
		m.Stop() // the agent stores a status with a delay
		m.Write("manifests/b.yaml", pod("b", "", "count", "100ms"))
		m.StartAgent(remote) // it serves the stored statuses
		if out, _ := m.Try("status"); !strings.Contains(out, "container runtime status check may not have completed yet") {
			t.Errorf("without a runtime:\n%s", out)
		}
		if p := m.Pods()["a-edge"]; p.Status.Phase != "Running" {
			t.Errorf("without a runtime the pod is %+v", p.Status)
		}
		c.Start()
		after := m.WaitReady("a-edge", "b-edge")["a-edge"].Status.ContainerStatuses[0]
		if after.ContainerID != before.ContainerID || after.RestartCount != 0 {
			t.Errorf("the container was replaced: %+v", after)
		}
		c.Kill() // while the agent runs
		c.Start()
		m.Remove("manifests/b.yaml")
		m.WaitReady("a-edge")
		if out := m.Islet("exec", "a-edge", "--", "/podtool", "env", "HOSTNAME"); !strings.Contains(out, "a-edge") {
			t.Errorf("exec after the restart of containerd: %q", out)
		}
	})
}

// TestStrictGroups checks that a pod with supplementalGroupsPolicy: Strict is rejected with Debian's containerd, which does not know the
// policy. A current containerd supports it. The node has no API server, so no report of a Node has read the features of the runtime.
func TestStrictGroups(t *testing.T) {
	machine.EachContainerd(t, func(t *testing.T, dir string) {
		m, _ := start(t, dir)
		strict := "spec:\n  securityContext: {supplementalGroupsPolicy: Strict}\n"
		m.Write("manifests/strict.yaml", strings.Replace(pod("strict", "", "count", "100ms"), "spec:\n", strict, 1))
		m.Write("manifests/merge.yaml", pod("merge", "", "count", "100ms"))
		m.StartAgent(remote)
		if filepath.Base(dir) != "debian" {
			m.WaitReady("strict-edge", "merge-edge")
			return
		}
		m.Await("the pod to be rejected", func() bool { return m.Pods()["strict-edge"].Status.Phase == "Failed" })
		if st := m.Pods()["strict-edge"].Status; st.Reason != "SupplementalGroupsPolicyNotSupported" || len(st.ContainerStatuses) > 0 &&
			st.ContainerStatuses[0].ContainerID != "" {
			t.Errorf("the pod is %+v", st)
		}
		m.Await("the other pod to run", func() bool { return m.Pods()["merge-edge"].Status.Phase == "Running" })
	})
}

// TestMove checks that a node changes from islet's own runtime to containerd and back. A pod must never run in both, and the events must
// report the remaining images.
func TestMove(t *testing.T) {
	machine.EachContainerd(t, func(t *testing.T, dir string) {
		m, c := start(t, dir)
		m.InstallImage()
		m.Write("manifests/a.yaml", pod("a", "", "count", "100ms"))
		m.StartAgent()
		m.WaitReady("a-edge")
		m.Stop()
		c.Stop()
		m.StartAgent(remote) // containerd is not running, so the pod stays
		m.WaitReady("a-edge")
		if out, code := m.Try("status"); code != 1 || !strings.Contains(out, "this node's pods stay in islet's own runtime") {
			t.Errorf("exit code %d:\n%s", code, out)
		}
		m.Stop()
		c.Start()
		m.StartAgent(remote)
		if st := m.WaitReady("a-edge")["a-edge"].Status; !strings.HasPrefix(st.PodIP, "10.77.0.") || m.Containers() != 2 { // with pause container
			t.Errorf("the pod is at %s, %d containers run", st.PodIP, m.Containers())
		}
		if out := m.Islet("events"); !strings.Contains(out, "ContainerRuntimeChanged") ||
			!strings.Contains(out, "Islet's own runtime keeps 1 images") {
			t.Errorf("events:\n%s", out)
		}
		m.Kill()
		m.StartAgent()
		if st := m.WaitReady("a-edge")["a-edge"].Status; !strings.HasPrefix(st.PodIP, "10.42.0.") || m.Containers() != 1 {
			t.Errorf("after the change back the pod's address is %s, and %d containers run", st.PodIP, m.Containers())
		}
	})
}

// TestCare checks that the agent rotates a container's log, executes probes with ExecSync, runs hooks and restarts an exited container. It
// must report an OOM kill, although the runtime may know the reason only after the exit.
func TestCare(t *testing.T) {
	machine.EachContainerd(t, func(t *testing.T, dir string) {
		m, _ := start(t, dir)
		m.Write("kubelet.yaml", m.Kubelet("containerLogMaxSize: 1Ki\ncontainerLogMaxFiles: 3\ncontainerLogMonitorInterval: 3s\n"+machine.Roomy))
		m.Write("manifests/chatty.yaml",
			pod("chatty", `, readinessProbe: {exec: {command: [/podtool, env, HOSTNAME]}, periodSeconds: 1}, lifecycle: {postStart: {exec: {command: [/podtool, exit, "0"]}}}`, "count", "10ms"))
		m.Write("manifests/ends.yaml", pod("ends", "", "exit", "3", "2s"))
		eats := pod("eats", ", resources: {limits: {memory: 20Mi}}", "eat", "200")
		m.Write("manifests/eats.yaml", eats)
		m.StartAgent(remote)
		m.WaitPods("a probed pod, one that was restarted, and one that needed too much memory", func(p map[string]machine.Pod) bool {
			ends, eats := p["ends-edge"].Status.ContainerStatuses, p["eats-edge"].Status.ContainerStatuses
			return p["chatty-edge"].Ready() && len(ends) == 1 && ends[0].RestartCount > 0 &&
				len(eats) == 1 && eats[0].LastState.Terminated != nil && eats[0].LastState.Terminated.Reason == "OOMKilled"
		})
		tries := 1
		if filepath.Base(dir) == "debian" { // containerd before 2.3 may lose the event: containerd/containerd#8893
			tries = 5
		}
		for i := 1; ; i++ {
			name := fmt.Sprintf("once%d", i)
			m.Write("manifests/once.yaml", strings.NewReplacer("{name: eats}", "{name: "+name+"}", "spec:\n",
				"spec:\n  restartPolicy: Never\n").Replace(eats))
			var reason string
			m.WaitPods("an OOM-killed pod, and the last reason from the runtime", func(p map[string]machine.Pod) bool {
				once := p[name+"-edge"].Status.ContainerStatuses
				if len(once) != 1 || once[0].State.Terminated == nil {
					return false
				}
				reason = once[0].State.Terminated.Reason
				return reason == "OOMKilled" || time.Since(once[0].State.Terminated.FinishedAt) > 12*time.Second // the agent stops asking after 10 s
			})
			if reason == "OOMKilled" {
				break
			}
			if i == tries {
				t.Fatalf("%s was OOM-killed, and its reason is %s", name, reason)
			}
		}
		m.Await("a rotated log that is compressed", func() bool {
			all, err := filepath.Glob(filepath.Join(m.Disk, "logs/default_chatty-edge_*/c/0.log.*"))
			if err != nil {
				t.Fatal(err)
			}
			return len(all) == 2 && strings.HasSuffix(all[0], ".gz")
		})
	})
}
