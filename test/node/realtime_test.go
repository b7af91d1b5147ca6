package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/machine"
)

// realTimeRules allows real time to pods in files whose names begin with rt-.
const realTimeRules = `realTime:
  bandwidth: 40
  pods:
  - {namespaces: [default], names: ["rt-*"], sources: [file], policies: [FIFO, DEADLINE, BATCH], maxPriority: 30,
     ioClasses: [best-effort], maxLockedMemory: 64Mi}
`

// realTimePod returns the manifest of an unprivileged pod with annotations. Each annotation is "PREFIX: VALUE".
func realTimePod(name string, annotations []string, args ...string) string {
	var lines strings.Builder
	for _, a := range annotations {
		prefix, value, _ := strings.Cut(a, ": ")
		fmt.Fprintf(&lines, "    %s.islet.dev/c: %q\n", prefix, value)
	}
	text := manifest(name, "    resources: {limits: {cpu: 200m, memory: 64Mi}}\n"+
		"    securityContext: {runAsUser: 1000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n", args...)
	return strings.Replace(text, "metadata: {name: "+name+"}", "metadata:\n  name: "+name+"\n  annotations:\n"+lines.String(), 1)
}

// TestRealTime checks that the first process of an unprivileged container has the scheduling policy, the I/O priority and
// the memory limit that its annotations request, that commands in the container have the default policy, and that the node refuses
// requests that its configuration does not allow.
func TestRealTime(t *testing.T) {
	t.Parallel()
	if b, err := os.ReadFile("/proc/sys/kernel/sched_rt_runtime_us"); err != nil || strings.HasPrefix(string(b), "-") ||
		string(b) == "0\n" {
		t.Skipf("kernel.sched_rt_runtime_us is %q: %v", b, err)
	}
	m := bootMachine(t)
	oci := currentOCI(t)
	m.Write("old", "#!/bin/sh\n[ \"$1\" != features ] || exit 1\nexec "+oci+" \"$@\"\n")
	if err := os.Chmod(filepath.Join(m.Disk, "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nociRuntime: %s\n"+
		"runtimeHandlers: [{name: old, ociRuntime: %s/old}]\n%s", m.Disk, oci, m.Disk, realTimeRules))
	fifo := []string{"scheduler: FIFO priority=20", "io-priority: best-effort 1", "locked-memory: 2Mi"}
	for name, text := range map[string]string{
		"rt-fifo":     realTimePod("rt-fifo", fifo, "cyclic", "1ms", "300"),
		"rt-deadline": realTimePod("rt-deadline", []string{"scheduler: DEADLINE runtime=1ms deadline=5ms period=10ms"}, "stubborn"),
		"rt-batch":    realTimePod("rt-batch", []string{"scheduler: BATCH nice=5"}, "eat", "1"),
	} {
		m.Write("manifests/"+name+".yaml", text)
	}
	m.StartAgent()
	m.WaitReady("rt-fifo-edge", "rt-deadline-edge", "rt-batch-edge")
	for _, c := range []struct {
		args string
		want unix.SchedAttr
	}{
		{"cyclic", unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 20}},
		{"stubborn", unix.SchedAttr{Policy: unix.SCHED_DEADLINE, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Runtime: 1e6, Deadline: 5e6, Period: 10e6}},
		{"eat", unix.SchedAttr{Policy: unix.SCHED_BATCH, Nice: 5}},
	} {
		pid := processOf(t, m, "/podtool "+c.args)
		got, err := unix.SchedGetAttr(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got.Policy != c.want.Policy || got.Priority != c.want.Priority || got.Flags != c.want.Flags ||
			c.want.Policy == unix.SCHED_BATCH && got.Nice != c.want.Nice || c.want.Policy == unix.SCHED_DEADLINE &&
			(got.Runtime != c.want.Runtime || got.Deadline != c.want.Deadline || got.Period != c.want.Period) {
			t.Errorf("%s has %+v, not %+v", c.args, got, c.want)
		}
	}
	checkFIFO(t, m, filepath.Base(oci) == "crun")
	for name, c := range map[string]struct {
		annotations    []string
		reason, fields string
	}{
		"rt-high":  {[]string{"scheduler: FIFO priority=31"}, "RealTimeForbidden", "maxPriority"},
		"rt-class": {[]string{"io-priority: realtime 0"}, "RealTimeForbidden", "ioClasses"},
		"rt-typo":  {[]string{"scheduler: FIFO prio=3"}, "RealTimeForbidden", "priority"},
		"rt-much":  {[]string{"scheduler: DEADLINE runtime=4ms period=10ms"}, "RealTimeUnavailable", "realTime.bandwidth"},
		"plain":    {[]string{"locked-memory: 1Mi"}, "RealTimeForbidden", "realTime.pods"},
	} {
		m.Write("manifests/"+name+".yaml", realTimePod(name, c.annotations, "sleep"))
		m.WaitPods(name+" to be refused", func(pods map[string]machine.Pod) bool {
			s := pods[name+"-edge"].Status
			key, _, _ := strings.Cut(c.annotations[0], ":")
			return s.Phase == "Failed" && s.Reason == c.reason && strings.Contains(s.Message, c.fields) &&
				strings.Contains(s.Message, key+".islet.dev/c")
		})
		m.Await("the event about "+name, func() bool { return strings.Contains(m.Islet("describe", name+"-edge"), c.reason) })
	}
	old := realTimePod("rt-old", []string{"io-priority: best-effort 7"}, "sleep")
	m.Write("manifests/rt-old.yaml", strings.Replace(old, "spec:\n", "spec:\n  runtimeClassName: old\n", 1))
	m.WaitPods("an OCI runtime that would ignore the request to be refused", func(pods map[string]machine.Pod) bool {
		s := pods["rt-old-edge"].Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && strings.Contains(s[0].State.Waiting.Message, "best-effort 7") &&
			strings.Contains(s[0].State.Waiting.Message, "ociRuntime")
	})
}

// currentOCI returns an OCI runtime that supports scheduling policies: the crun that islet ships, or a runc if that crun has not been built
// yet. With ISLET_TEST_LONG the crun is built, which compiles C for a minute.
func currentOCI(t *testing.T) string {
	t.Helper()
	ways := []string{"cached"}
	if os.Getenv("ISLET_TEST_LONG") != "" {
		ways = append(ways, "run")
	}
	for _, how := range ways {
		if out, err := exec.Command("../../packaging/oci/build.sh", runtime.GOARCH, how).Output(); err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return machine.Runc(t)
}

// checkFIFO checks the pod rt-fifo. The pod measures its latency meanwhile. Commands in the container must have the default policy. This is
// checked only with crun, because runc gives them the policy of the container.
func checkFIFO(t *testing.T, m *machine.Machine, crun bool) {
	t.Helper()
	pid := processOf(t, m, "/podtool cyclic")
	const who, class = 1, 13 // IOPRIO_WHO_PROCESS, IOPRIO_CLASS_SHIFT
	if got, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, who, uintptr(pid), 0); errno != 0 || got != 2<<class|1 {
		t.Errorf("the I/O priority is %#x: %v", got, errno)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Max locked memory": "2097152 2097152 bytes", "Max realtime priority": "0 0", "Max realtime timeout": "1000000 1000000 us",
	} {
		_, line, _ := strings.Cut(string(limits), name)
		line, _, _ = strings.Cut(line, "\n")
		if got := strings.Join(strings.Fields(line), " "); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	status := m.Islet("exec", "rt-fifo-edge", "--", "/podtool", "cat", "/proc/self/stat", "/proc/1/status")
	fields := strings.Fields(status[strings.LastIndex(strings.SplitAfter(status, "\n")[0], ")"):])
	if crun && (fields[38] != "0" || fields[39] != "0") {
		t.Errorf("a command in the container has priority %s and policy %s", fields[38], fields[39])
	}
	if !strings.Contains(status, "CapPrm:\t0000000000000000") {
		t.Errorf("the container has capabilities:\n%s", status)
	}
	var line []string
	m.Await("the latency of the pod", func() bool {
		line = regexp.MustCompile(`policy=1 priority=20 cycles=300 max=(\d+)us`).FindStringSubmatch(m.Islet("logs", "rt-fifo-edge"))
		return line != nil
	})
	if us, err := strconv.Atoi(line[1]); err != nil || us <= 0 {
		t.Errorf("the latency is %q", line)
	}
}

// processOf returns the PID of the only process in pods whose command line begins with a text.
func processOf(t *testing.T, m *machine.Machine, command string) (pid int) {
	t.Helper()
	for id, line := range m.ContainerProcesses() {
		if strings.HasPrefix(line, command) {
			pid = id
		}
	}
	if pid == 0 {
		t.Fatalf("no process %q in %v", command, m.ContainerProcesses())
	}
	return pid
}
