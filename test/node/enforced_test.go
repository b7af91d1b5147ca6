package node

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// cgroupLimits contains the limits of a cgroup. Under cgroup v2, the CPU shares are empty.
type cgroupLimits struct{ memory, shares, pids string }

// unified reports whether the machine has only cgroup v2.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// readLimits reads the limits of a cgroup.
func readLimits(t *testing.T, cgroup string) cgroupLimits {
	t.Helper()
	read := func(controller, file string) string {
		t.Helper()
		return strings.TrimSpace(fileText(t, filepath.Join("/sys/fs/cgroup", controller, cgroup, file)))
	}
	if unified() {
		return cgroupLimits{memory: read("", "memory.max"), pids: read("", "pids.max")}
	}
	return cgroupLimits{read("memory", "memory.limit_in_bytes"), read("cpu", "cpu.shares"), read("pids", "pids.max")}
}

// mostPIDs returns the maximum number of processes and threads in a machine.
func mostPIDs(t *testing.T, m *machine.Machine) int {
	t.Helper()
	var most, threads int
	if _, err := fmt.Sscan(m.Run("cat", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"), &most, &threads); err != nil {
		t.Fatal(err)
	}
	return min(most, threads)
}

// weight returns the cpu.shares of a number of millicores.
func weight(milli int) string { return fmt.Sprint(milli * 1024 / 1000) }

// hierarchies returns the mount points of the cgroup v1 controllers.
func hierarchies(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil || len(found) == 0 {
		t.Fatalf("no hierarchy of cgroups: %v", err)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// makeCgroup creates a cgroup in all hierarchies.
func makeCgroup(t *testing.T, cgroup string) {
	t.Helper()
	for _, at := range hierarchies(t) {
		if err := os.MkdirAll(filepath.Join(at, cgroup), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// refuses starts an agent that must exit at once, and checks that its log contains the given texts.
func refuses(t *testing.T, m *machine.Machine, words ...string) {
	t.Helper()
	before := len(m.AgentLog(1 << 20))
	m.LaunchAgent()
	m.AwaitEnd()
	said := m.AgentLog(1 << 20)[before:]
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("no %q in the agent's log:\n%s", w, said)
		}
	}
}

// TestEnforces checks that each configured cgroup is limited to its reserved resources, and that the cgroup of pods is limited to the
// rest. If one of these cgroups is missing, the agent must exit with an error that names the cgroup.
func TestEnforces(t *testing.T) {
	t.Parallel()
	if unified() {
		t.Skip("it reads the files of cgroup v1")
	}
	m := bootMachine(t)
	system, kube, pods := m.Cgroup+"/system", m.Cgroup+"/kube", m.Cgroup+"/kubepods"
	configure := func(enforce, kubeReserved, systemReserved string) {
		m.Write("kubelet.yaml",
			evictConfig(m, fmt.Sprintf(
				"evictionHard: {memory.available: 1Mi}\nenforceNodeAllocatable: [%s]\nkubeReservedCgroup: %s\nsystemReservedCgroup: %s\nkubeReserved: {%s}\nsystemReserved: {%s}\n",
				enforce, kube, system, kubeReserved, systemReserved)))
	}
	m.Write("manifests/one.yaml", manifest("one", "", "sleep"))

	configure("pods, kube-reserved, system-reserved", `cpu: 250m, memory: 200Mi, pid: "1500"`, `cpu: 500m, memory: 300Mi, pid: "2000"`)
	refuses(t, m, "Failed to enforce System Reserved Cgroup Limits on "+quoted(system)+": cgroup ",
		"has some missing paths: /sys/fs/cgroup/cpu"+system+", ")
	makeCgroup(t, system)
	refuses(t, m, "Failed to enforce Kube Reserved Cgroup Limits on "+quoted(kube)+": cgroup ", ", /sys/fs/cgroup/memory"+kube+", ")
	makeCgroup(t, kube)
	lone := filepath.Join("/sys/fs/cgroup/pids", kube)
	if err := syscall.Rmdir(lone); err != nil {
		t.Fatal(err)
	}
	refuses(t, m, "has some missing paths: "+lone)
	makeCgroup(t, kube)

	m.StartAgent()
	m.WaitReady("one-edge")
	all := runtime.NumCPU() * 1000
	rest := cgroupLimits{fmt.Sprint((memoryKiB(t) - 500<<10) << 10), weight(all - 750), fmt.Sprint(mostPIDs(t, m) - 3500)}
	for cgroup, want := range map[string]cgroupLimits{
		kube:   {fmt.Sprint(200 << 20), weight(250), "1500"},
		system: {fmt.Sprint(300 << 20), weight(500), "2000"},
		pods:   rest,
	} {
		if got := readLimits(t, cgroup); got != want {
			t.Errorf("the limits of %s are %v, not %v", cgroup, got, want)
		}
	}
	said := m.Islet("events")
	for _, want := range []string{"Updated limits on kube reserved cgroup " + kube, "Updated limits on system reserved cgroup " + system, "Updated Node Allocatable limit across pods"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}

	m.Stop()
	configure("kube-reserved-compressible, system-reserved-compressible", `cpu: 300m, memory: 210Mi, pid: "1600"`,
		`cpu: 600m, memory: 310Mi, pid: "2100"`)
	m.StartAgent()
	m.WaitReady("one-edge")
	for cgroup, want := range map[string]cgroupLimits{
		kube:   {fmt.Sprint(200 << 20), weight(300), "1500"},
		system: {fmt.Sprint(300 << 20), weight(600), "2000"},
	} {
		if got := readLimits(t, cgroup); got != want {
			t.Errorf("the limits of %s are %v with only the CPU enforced, not %v", cgroup, got, want)
		}
	}
	if got := readLimits(t, pods); got.memory != fmt.Sprint(memoryKiB(t)<<10) || got.shares != weight(all) {
		t.Errorf("the limits of pods are %v although they are not enforced", got)
	}
}

// quoted quotes a word in the same way as the agent's log.
func quoted(word string) string { return strings.ReplaceAll(fmt.Sprintf("%q", word), `"`, `\"`) }
