package node

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestCPUs checks that a guaranteed pod gets an exclusive CPU and keeps it after a SIGKILL of the agent. The other pods must leave that
// CPU, and use it again when the guaranteed pod is deleted. The limits of the pods' cgroup must exclude the reserved memory and process
// IDs.
func TestCPUs(t *testing.T) {
	t.Parallel()
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU: none can be given away")
	}
	m := bootMachine(t)
	m.Write("manifests/shared.yaml", manifest("shared", "", "count", "100ms"))
	flags := []string{"--cpu-manager-policy=static", "--reserved-cpus=0", "--kube-reserved=memory=300Mi,pid=500", "--topology-manager-policy=single-numa-node"}
	m.StartAgent(flags...)
	m.WaitReady("shared-edge")
	on := func(pod string) string {
		t.Helper()
		return allowed(m, pod, "Cpus")
	}
	if got := readLimits(t, m.Cgroup+"/kubepods"); got.memory != fmt.Sprint((memoryKiB(t)-300<<10)<<10) ||
		got.pids != fmt.Sprint(mostPIDs(t, m)-500) {
		t.Errorf("pods are held to %+v", got)
	}
	all := on("shared-edge")
	if !strings.HasPrefix(all, "0-") {
		t.Fatalf("the shared pod runs on %q", all)
	}
	own := manifest("own", "    resources: {limits: {cpu: 1, memory: 32Mi}}\n", "count", "100ms")
	m.Write("manifests/own.yaml", own)
	pod := m.WaitReady("own-edge", "shared-edge")["own-edge"]
	mine := on("own-edge")
	m.Await("the shared pod to leave the CPU", func() bool { return on("shared-edge") != all })
	if mine == "" || strings.ContainsAny(mine, ",-") || mine == "0" || strings.Contains(on("shared-edge"), mine) &&
		!strings.Contains(on("shared-edge"), "-") {
		t.Errorf("own %q, shared %q", mine, on("shared-edge"))
	}
	for _, file := range []string{"cpu.cfs_quota_us", "cpu.max"} { // cgroup v1 and v2
		found, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/cpu", m.Cgroup, "kubepods", "pod*", file))
		v2, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", m.Cgroup, "kubepods", "pod*", file))
		for _, f := range append(found, v2...) {
			if b, err := os.ReadFile(f); err != nil || !strings.HasPrefix(string(b), "-1") && !strings.HasPrefix(string(b), "max") {
				t.Errorf("the pod has a quota: %s %v", b, err)
			}
		}
	}
	first := pod.Status.ContainerStatuses[0]
	m.Kill()
	m.StartAgent(flags...)
	if again := m.WaitReady("own-edge", "shared-edge")["own-edge"].Status.ContainerStatuses[0]; again.ContainerID != first.ContainerID ||
		again.RestartCount != 0 || on("own-edge") != mine || strings.Contains(on("shared-edge"), "-") && runtime.NumCPU() == 2 {
		t.Errorf("after kill -9: %+v on %s, shared %s", again, on("own-edge"), on("shared-edge"))
	}
	m.Write("manifests/late.yaml", manifest("late", "    resources: {limits: {cpu: 1000, memory: 32Mi}}\n", "count", "100ms"))
	m.WaitPods("the pod that asks for too much to be refused",
		func(pods map[string]machine.Pod) bool { return pods["late-edge"].Status.Reason == "OutOfcpu" })
	m.Remove("manifests/own.yaml")
	m.Await("the shared pod to come back to the CPU", func() bool { return on("shared-edge") == all })
}

// allowed returns the CPUs ("Cpus") or memory nodes ("Mems") that the kernel allows to a pod's first process.
func allowed(m *machine.Machine, pod, what string) string {
	_, list, _ := strings.Cut(m.Islet("exec", pod, "--", "/podtool", "cat", "/proc/1/status"), what+"_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	return strings.TrimSpace(list)
}

// TestPolicies checks that the policies and their options in a configuration file set the cpuset cgroups of containers. A strictly
// reserved CPU must not be shared, and a guaranteed pod must have exclusive CPUs and memory nodes. Reserved memory that differs from the
// node's reservation must be rejected.
func TestPolicies(t *testing.T) {
	t.Parallel()
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU: none can be given away")
	}
	m := bootMachine(t)
	configure := func(reserved int) {
		m.Write("kubelet.yaml",
			evictConfig(m, fmt.Sprintf(
				"evictionHard: {memory.available: 100Mi}\nkubeReserved: {memory: 200Mi}\nreservedSystemCPUs: '0'\ncpuManagerPolicy: static\ncpuManagerPolicyOptions: {strict-cpu-reservation: 'true', full-pcpus-only: 'false'}\n"+
					"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: %dMi}}]\ntopologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: '8'}\n", reserved)))
	}
	configure(299)
	refuses(t, m, "memoryManagerPolicy: ")
	configure(300)
	rest := "1"
	if n := runtime.NumCPU(); n > 2 {
		rest = fmt.Sprintf("1-%d", n-1)
	}
	m.Write("manifests/shared.yaml", manifest("shared", "", "sleep"))
	m.StartAgent()
	m.WaitReady("shared-edge")
	if got := allowed(m, "shared-edge", "Cpus"); got != rest {
		t.Errorf("the shared pod runs on %s, not %s", got, rest)
	}
	m.Remove("manifests/shared.yaml")
	m.WaitReady()
	m.Write("manifests/own.yaml", manifest("own", "    resources: {limits: {cpu: 1, memory: 32Mi}}\n", "sleep"))
	pod := m.WaitReady("own-edge")["own-edge"]
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	dirs, err := filepath.Glob("/sys/fs/cgroup/cpuset" + m.Cgroup + "/kubepods/pod*/" + id)
	if unified() {
		dirs, err = filepath.Glob("/sys/fs/cgroup" + m.Cgroup + "/kubepods/pod*/" + id)
	}
	if err != nil || len(dirs) != 1 {
		t.Fatalf("want one cgroup of the container, have %q: %v", dirs, err)
	}
	for file, want := range map[string]string{"cpuset.cpus": allowed(m, "own-edge", "Cpus"), "cpuset.mems": allowed(m, "own-edge", "Mems")} {
		if got := strings.TrimSpace(fileText(t, filepath.Join(dirs[0], file))); got != want || got == "" ||
			strings.ContainsAny(got, ",-") || file == "cpuset.cpus" && got == "0" {
			t.Errorf("%s is %q, not %q", file, got, want)
		}
	}
}
