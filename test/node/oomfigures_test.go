package node

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// value returns the sum of a metric's samples that have the given labels, and the number of these samples.
func value(t *testing.T, page, name string, labels ...string) (sum float64, lines int) {
	t.Helper()
next:
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name+"{")
		if !ok {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		text := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])[0]
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		sum, lines = sum+n, lines+1
	}
	return sum, lines
}

// TestOOMFigures checks the metrics of OOM kills. The kernel kills one process of a container, and the other processes of the container
// continue. The kill must be counted for the container. A reached limit must be counted in the cgroup with the limit. With cgroup v2, both
// must also be counted in all parent cgroups, so a pod keeps the counts after its container has ended.
func TestOOMFigures(t *testing.T) {
	t.Parallel()
	v2 := 0.0
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		v2 = 1
	}
	m := bootMachine(t)
	m.Write("kubelet.yaml", m.Kubelet("singleProcessOOMKill: true\n"+machine.Roomy))
	limit := "    resources: {limits: {memory: 16Mi}}\n"
	calm := limit + "  - {name: calm, image: \"" + machine.Image +
		"\", imagePullPolicy: Never, args: [sleep]}\n" // a container without a limit, so the pod has none
	m.Write("manifests/part.yaml", manifest("part", calm, "sleep"))
	m.Write("manifests/alone.yaml", manifest("alone", limit, "sleep"))
	m.Write("manifests/whole.yaml", manifest("whole", calm, "eat", "64"))
	a := m.StartAgent()
	m.WaitPods("two to run and the other to have ended", func(pods map[string]machine.Pod) bool {
		for _, c := range pods["whole-edge"].Status.ContainerStatuses {
			if end := c.LastState.Terminated; c.Name == "c" && end != nil && end.Reason == "OOMKilled" {
				return pods["part-edge"].Ready() && pods["alone-edge"].Ready()
			}
		}
		return false
	})
	for _, name := range []string{"part-edge", "alone-edge"} {
		if out, code := m.Try("exec", name, "-c", "c", "--", "/podtool", "eat", "64"); code != 137 {
			t.Fatalf("the process that exceeded the limit exited with %d: %s", code, out)
		}
	}
	var page string
	of := func(name string, labels ...string) float64 {
		t.Helper()
		n, lines := value(t, page, name, labels...)
		if lines != 1 {
			t.Fatalf("%d lines of %s with %s in\n%s", lines, name, labels, page)
		}
		return n
	}
	const killed, met = "container_oom_events_total", "container_memory_failcnt"
	part, pod := []string{`container="c"`, `pod="part-edge"`}, []string{`container=""`, `pod="part-edge"`}
	m.Await("the page to have what was killed", func() bool {
		page = get(t, a, "/metrics/cadvisor")
		return of(killed, part...) > 0 && of(killed, `container="c"`, `pod="alone-edge"`) > 0
	})
	if n := of(met, `container=""`, `pod="alone-edge"`); n == 0 {
		t.Error("the limit of a pod with one container was not counted")
	}
	whole, all, root := []string{`container=""`, `pod="whole-edge"`}, []string{`id="` + m.Cgroup + `/kubepods"`}, []string{`id="/"`}
	if n, hits := of(killed, part...), of(met, part...); n != 1 || v2 > 0 &&
		hits == 0 { // with v1 the kernel may count only the limit of memory and swap
		t.Errorf("the running container lost %v processes and reached its limit %v times", n, hits)
	}
	for what, labels := range map[string][]string{"its pod": pod, "the pod whose container ended": whole, "all pods": all} {
		n, hits := of(killed, labels...), of(met, labels...)
		if (n > 0) != (v2 > 0) || (hits > 0) != (v2 > 0) {
			t.Errorf("%s: %v killed, limit reached %v times; cgroup v2: %v", what, n, hits, v2)
		}
	}
	if n := of(killed, pod...); n != v2 {
		t.Errorf("its pod lost %v processes", n)
	}
	if n, hits := of(killed, root...), of(met, root...); n != 0 || hits != 0 {
		t.Errorf("the machine: %v killed, limit reached %v times", n, hits)
	}
	if restarts := m.Pods()["part-edge"].Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("the container that lost a process was restarted %d times", restarts)
	}
}
