package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// tick is the kernel's unit of a process's start time (USER_HZ).
const tick = 10 * time.Millisecond

// startOf returns the start time of a process since the boot.
func startOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	n, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * tick
}

// cpuOf returns the CPU time of a process, and of its ended children.
func cpuOf(pid int) (own, children time.Duration) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0 // the process has exited
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var n [4]time.Duration
	for i := range n {
		v, _ := strconv.ParseInt(fields[11+i], 10, 64)
		n[i] = time.Duration(v) * tick
	}
	return n[0] + n[1], n[2] + n[3]
}

// cpuParts returns the CPU time of the agent, of the shims, and of their ended children. Most of these children are processes of the OCI
// runtime.
func cpuParts(m *machine.Machine) string {
	var agent, shims, ran time.Duration
	for pid, cmd := range m.Processes() {
		own, children := cpuOf(pid)
		ran += children
		if strings.Contains(cmd, "islet-shim") {
			shims += own
		} else {
			agent += own
		}
	}
	return fmt.Sprintf("agent %s, shims %s, OCI runtime %s", seconds(agent), seconds(shims), seconds(ran))
}

// uptime returns the time since the boot.
func uptime(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	s, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(s * float64(time.Second))
}

// containerStarts returns the start times of the containers' processes since the boot, sorted.
func containerStarts(t *testing.T, m *machine.Machine, n int) []time.Duration {
	t.Helper()
	var all []time.Duration
	for pid := range m.ContainerProcesses() {
		all = append(all, startOf(t, pid))
	}
	if len(all) != n {
		t.Fatalf("%d container processes, want %d", len(all), n)
	}
	slices.Sort(all)
	return all
}
