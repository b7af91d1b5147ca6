package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// eats is a pod that has so many MiB, with a priority.
func eats(name string, priority, mib int) string {
	return manifest(name, fmt.Sprintf("  priority: %d\n", priority), "eat", fmt.Sprint(mib))
}

// disrupted reports whether a pod says that the node ended it for others.
func disrupted(p machine.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "DisruptionTarget" {
			return c.Status == "True" && c.Reason == "TerminationByKubelet"
		}
	}
	return false
}

// evictedFor fails unless a pod is shown as evicted, with these words.
func evictedFor(t *testing.T, p machine.Pod, words ...string) {
	t.Helper()
	if p.Status.Phase != "Failed" || p.Status.Reason != "Evicted" || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.Status.Message, w) }) {
		t.Errorf("%s is %+v, and lacks some of %q", p.Metadata.Name, p.Status, words)
	}
}

// TestEvictsForMemory: of pods that have more memory together than is left for them, the
// right one ends, and no other, at the kernel's word and not when a timer looks; a killed
// agent does not forget that, and when another pod goes it comes back.
func TestEvictsForMemory(t *testing.T) {
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	var kib int
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d", &kib); err != nil {
		t.Fatal(err)
	}
	m.Write("kubelet.yaml", fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupRoot: %s\nfailSwapOn: false\npodLogsDir: %s/logs\n"+
		"systemReserved: {memory: %dKi}\nevictionHard: {allocatableMemory.available: 100Mi}\nevictionPressureTransitionPeriod: 5s\n", m.Cgroup, m.Disk, kib-400<<10))
	m.Write("manifests/critical.yaml", eats("critical", 2_000_000_000, 50))
	m.Write("manifests/friend.yaml", eats("friend", 100, 120))
	m.StartAgent()
	before := containers(m.WaitReady("critical-edge", "friend-edge"))
	came := time.Now()
	m.Write("manifests/hungry.yaml", eats("hungry", 0, 140))
	hungry := m.WaitPods("the hungry pod to be evicted", func(pods map[string]machine.Pod) bool { return pods["hungry-edge"].Status.Phase == "Failed" })["hungry-edge"]
	evictedFor(t, hungry, "The node was low on resource: memory. Threshold quantity: 100Mi, available: ", "Container c was using ", ", request is 0, has larger consumption of memory. ")
	if !disrupted(hungry) {
		t.Errorf("%+v", hungry.Status.Conditions)
	}
	m.Kill()
	os.Remove(filepath.Join(m.Disk, "manifests/friend.yaml"))
	a := m.StartAgent()
	after := m.WaitPods("the hungry pod to come back", func(pods map[string]machine.Pod) bool {
		return ready(pods, []string{"critical-edge", "hungry-edge"})
	})
	if p := after["hungry-edge"]; p.Status.Reason != "" || disrupted(p) || after["critical-edge"].Status.ContainerStatuses[0].ContainerID != before["critical-edge"] {
		t.Errorf("%+v\n%+v", p.Status, after["critical-edge"].Status)
	}
	var evictions []string
	for line := range strings.Lines(m.AgentLog(1 << 20)) {
		if strings.Contains(line, "the pressure on the node") {
			t.Log(line)
		}
		if strings.Contains(line, "pod is evicted") {
			evictions = append(evictions, line)
			t.Logf("%v after its manifest came: %s", loggedAt(t, line).Sub(came), line)
		}
	}
	if len(evictions) != 1 || !strings.Contains(evictions[0], " by=kernel ") {
		t.Errorf("evictions in the log: %q", evictions)
	}
	if page := get(t, a, "/metrics"); strings.Contains(page, "kubelet_evictions{") {
		t.Error("the second agent evicted a pod")
	}
}

// loggedAt is the time of a line of the agent's log.
func loggedAt(t *testing.T, line string) time.Time {
	t.Helper()
	word, _, _ := strings.Cut(line, " ")
	at, err := time.Parse("time="+time.RFC3339, word)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestEvictsForDisk: a pod that fills its emptyDir beyond the limit ends for that, one that
// fills the disk for what is left of it, and then the disk is free again.
func TestEvictsForDisk(t *testing.T) {
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	m.Write("kubelet.yaml", fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupRoot: %s\nfailSwapOn: false\npodLogsDir: %s/logs\n"+
		"evictionHard: {nodefs.available: 40%%}\n", m.Cgroup, m.Disk))
	m.Run("sh", "-c", fmt.Sprintf("mkdir %[1]s/kubelet; truncate -s 100M %[1]s/img; mkfs.ext4 -q %[1]s/img; mount -o loop %[1]s/img %[1]s/kubelet", m.Disk))
	fills := func(name, limit string, mib int) string {
		return manifest(name, fmt.Sprintf("    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {%s}}]\n", limit), "fill", "/v/file", fmt.Sprint(mib))
	}
	m.Write("manifests/small.yaml", fills("small", "sizeLimit: 10Mi", 5))
	m.Write("manifests/limited.yaml", fills("limited", "sizeLimit: 10Mi", 12))
	a := m.StartAgent()
	over := func(name string) machine.Pod {
		return m.WaitPods(name+" to be evicted", func(pods map[string]machine.Pod) bool { return pods[name+"-edge"].Status.Phase == "Failed" })[name+"-edge"]
	}
	evictedFor(t, over("limited"), `Usage of EmptyDir volume "v" exceeds the limit "10Mi". `)
	m.Write("manifests/filler.yaml", fills("filler", "", 50))
	filler := over("filler")
	evictedFor(t, filler, "The node was low on resource: ephemeral-storage. Threshold quantity: ")
	m.Await("its files to be gone", func() bool {
		left, err := filepath.Glob(fmt.Sprintf("/proc/%d/root%s/kubelet/pods/%s/volumes/*/*/file", a.Pid, m.Disk, filler.Metadata.UID))
		return err == nil && len(left) == 0
	})
	if p := m.Pods()["small-edge"]; !p.Ready() {
		t.Errorf("the pod within its limit is %+v", p.Status)
	}
	page := get(t, a, "/metrics")
	for _, want := range []string{`kubelet_evictions{eviction_signal="nodefs.available"} 1`, `kubelet_evictions{eviction_signal="emptydirfs.limit"} 1`, `kubelet_eviction_stats_age_seconds_count{eviction_signal="nodefs.available"} 1`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if log, err := filepath.Glob(filepath.Join(m.Disk, "logs", "*filler*", "c", "*.log")); err != nil || len(log) > 0 {
		t.Errorf("its logs are there: %v %v", log, err)
	}
}
