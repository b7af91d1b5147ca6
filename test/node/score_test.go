package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// leastScore returns the lowest oom_score_adj that this process can set. Without CAP_SYS_RESOURCE this is its own score.
func leastScore(t *testing.T) int {
	t.Helper()
	const sysResource = 24
	var caps uint64
	for line := range strings.Lines(fileText(t, "/proc/self/status")) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			var err error
			if caps, err = strconv.ParseUint(strings.TrimSpace(text), 16, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	if caps&(1<<sysResource) != 0 {
		return -1000
	}
	t.Log("without CAP_SYS_RESOURCE no score is lower than that of the test")
	return score(t, os.Getpid())
}

func fileText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// score returns the oom_score_adj of a process.
func score(t *testing.T, pid int) int {
	t.Helper()
	return number(t, fileText(t, fmt.Sprintf("/proc/%d/oom_score_adj", pid)))
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// memoryKiB returns the memory of the machine in KiB.
func memoryKiB(t *testing.T) (kib int) {
	t.Helper()
	if _, err := fmt.Sscanf(fileText(t, "/proc/meminfo"), "MemTotal: %d", &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestScores checks the oom_score_adj of the agent, its shims, its child processes, the containers of pods and a command in a container.
func TestScores(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	least, kib := leastScore(t), memoryKiB(t)
	m.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %[1]s/cni\ncniBinDirs: [%[1]s/bin]\n", m.Disk))
	m.Write("cni/10-noted.conflist", `{"cniVersion": "1.0.0", "name": "noted", "plugins": [{"type": "noted"}]}`)
	m.Write("bin/noted", fmt.Sprintf(
		"#!/bin/sh\ncat /proc/self/oom_score_adj >>%s/plugin\necho '{\"cniVersion\": \"1.0.0\", \"supportedVersions\": [\"1.0.0\"], \"ips\": [{\"address\": \"10.42.0.7/24\"}]}'\n", m.Disk))
	if err := os.Chmod(filepath.Join(m.Disk, "bin/noted"), 0o755); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, text := range map[string]string{
		"best":       manifest("best", "", "sleep"),
		"burst":      manifest("burst", fmt.Sprintf("    resources: {requests: {memory: %dKi}}\n", kib/4), "sleep"),
		"little":     manifest("little", "    resources: {requests: {memory: 1Ki}}\n", "sleep"),
		"guaranteed": manifest("guaranteed", "    resources: {limits: {cpu: 10m, memory: 32Mi}}\n", "sleep"),
		"node":       manifest("node", "  priorityClassName: system-node-critical\n", "sleep"),
		"cluster":    manifest("cluster", "  priorityClassName: system-cluster-critical\n", "sleep"),
		"together":   manifest("together", "  shareProcessNamespace: true\n", "sleep"),
	} {
		m.Write("manifests/"+name+".yaml", text)
		names = append(names, name+"-edge")
	}
	a := m.StartAgent()
	m.WaitReady(names...)
	for what, c := range map[string]struct {
		pod, process string
		want         int
	}{
		"a best-effort container":                    {"best", "1", 1000},
		"a command in it":                            {"best", "self", 1000},
		"a burstable container":                      {"burst", "1", 1000 - 1000*(kib/4)/kib},
		"a burstable container that asks for little": {"little", "1", 999},
		"a guaranteed container":                     {"guaranteed", "1", -997},
		"a command in it, too":                       {"guaranteed", "self", -997},
		"a container of a node-critical pod":         {"node", "1", -997},
		"a best-effort container, critical":          {"cluster", "1", 1000},
		"the init of processes that are shared":      {"together", "1", -998},
		"a container below it":                       {"together", "self", 1000},
	} {
		got := number(t, m.Islet("exec", c.pod+"-edge", "--", "/podtool", "cat", "/proc/"+c.process+"/oom_score_adj"))
		if want := max(c.want, least); got != want {
			t.Errorf("%s has %d, not %d", what, got, want)
		}
	}
	dear := max(-999, least)
	if got := score(t, a.Pid); got != dear {
		t.Errorf("the agent has %d, not %d", got, dear)
	}
	shims := 0
	for pid, command := range m.Processes() {
		if strings.Contains(command, "/islet-shim-") && strings.Contains(command, " serve ") {
			shims++
			if got := score(t, pid); got != dear {
				t.Errorf("%s has %d, not %d", command, got, dear)
			}
		}
	}
	if shims == 0 {
		t.Errorf("no shim among %v", m.Processes())
	}
	noted := strings.Fields(fileText(t, filepath.Join(m.Disk, "plugin")))
	if noted = slices.Compact(noted); len(noted) != 1 || number(t, noted[0]) != dear {
		t.Errorf("a network plugin has %q, not %d", noted, dear)
	}
}
