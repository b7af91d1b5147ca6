package node

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// eats returns a pod that allocates memory. The pod has the given priority.
func eats(name string, priority, mib int) string {
	return manifest(name, fmt.Sprintf("  priority: %d\n", priority), "eat", fmt.Sprint(mib))
}

// disrupted reports whether a pod has the condition DisruptionTarget with the reason for an eviction.
func disrupted(p machine.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "DisruptionTarget" {
			return c.Status == "True" && c.Reason == "TerminationByKubelet"
		}
	}
	return false
}

// evictedFor checks that a pod has the status Evicted, with the given texts in its message.
func evictedFor(t *testing.T, p machine.Pod, words ...string) {
	t.Helper()
	if p.Status.Phase != "Failed" || p.Status.Reason != "Evicted" ||
		slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.Status.Message, w) }) {
		t.Errorf("%s is %+v, and lacks some of %q", p.Metadata.Name, p.Status, words)
	}
}

// TestEvictsForMemory checks that memory pressure evicts only the pod with the lowest priority. A notification of the kernel, not a timer,
// must start the eviction. The eviction must survive a SIGKILL of the agent, and the pod must run again when another pod is deleted.
func TestEvictsForMemory(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("kubelet.yaml",
		evictConfig(m, fmt.Sprintf(
			"systemReserved: {memory: %dKi}\nevictionHard: {allocatableMemory.available: 100Mi}\nevictionPressureTransitionPeriod: 5s\n",
			memoryKiB(t)-400<<10)))
	m.Write("manifests/critical.yaml", eats("critical", 2_000_000_000, 50))
	m.Write("manifests/friend.yaml", eats("friend", 100, 120))
	m.StartAgent()
	before := containers(m.WaitReady("critical-edge", "friend-edge"))
	came := time.Now()
	m.Write("manifests/hungry.yaml", eats("hungry", 0, 140))
	hungry := m.WaitPods("the hungry pod to be evicted",
		func(pods map[string]machine.Pod) bool { return pods["hungry-edge"].Status.Phase == "Failed" })["hungry-edge"]
	evictedFor(t, hungry, "The node was low on resource: memory. Threshold quantity: 100Mi, available: ", "Container c was using ",
		", request is 0, has larger consumption of memory. ")
	if !disrupted(hungry) {
		t.Errorf("%+v", hungry.Status.Conditions)
	}
	m.Kill()
	os.Remove(filepath.Join(m.Disk, "manifests/friend.yaml"))
	a := m.StartAgent()
	after := m.WaitPods("the hungry pod to come back", func(pods map[string]machine.Pod) bool {
		return areReady(pods, []string{"critical-edge", "hungry-edge"})
	})
	if p := after["hungry-edge"]; p.Status.Reason != "" || disrupted(p) ||
		after["critical-edge"].Status.ContainerStatuses[0].ContainerID != before["critical-edge"] {
		t.Errorf("%+v\n%+v", p.Status, after["critical-edge"].Status)
	}
	var evictions []string
	for line := range strings.Lines(m.AgentLog(1 << 20)) {
		if strings.Contains(line, "conditions=[") {
			t.Log(line)
		}
		if strings.Contains(line, " signal=") && strings.Contains(line, " uid=") {
			evictions = append(evictions, line)
			t.Logf("%v after its manifest came: %s", loggedAt(t, line).Sub(came), line)
		}
	}
	if len(evictions) != 1 || !strings.Contains(evictions[0], " by=kernel ") {
		t.Errorf("evictions in the log: %q", evictions)
	}
	page := get(t, a, "/metrics")
	if !strings.Contains(page, "kubelet_evictions{") || regexp.MustCompile(`kubelet_evictions\{[^}]*\} [^0]`).MatchString(page) {
		t.Error("the second agent evicted a pod, or does not count evictions")
	}
}

// TestEvictsSoftlyForMemory checks that a soft threshold evicts pods only after its grace period. Pods must be evicted in the order of
// their rank until the minimum reclaim is reached.
func TestEvictsSoftlyForMemory(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	const grace = 3 * time.Second
	m.Write("kubelet.yaml",
		evictConfig(m, fmt.Sprintf(
			"systemReserved: {memory: %dKi}\nevictionHard: {memory.available: 1Mi}\nevictionSoft: {allocatableMemory.available: 100Mi}\n"+
				"evictionSoftGracePeriod: {allocatableMemory.available: %s}\nevictionMinimumReclaim: {allocatableMemory.available: 180Mi}\n",
			memoryKiB(t)-400<<10, grace)))
	m.Write("manifests/critical.yaml", eats("critical", 2_000_000_000, 50))
	m.Write("manifests/friend.yaml", eats("friend", 100, 120))
	m.Write("manifests/dearest.yaml", eats("dearest", 200, 20))
	a := m.StartAgent()
	before := containers(m.WaitReady("critical-edge", "friend-edge", "dearest-edge"))
	m.Write("manifests/hungry.yaml", eats("hungry", 0, 120))
	for _, name := range []string{"hungry", "friend"} { // 80 MiB are available at first, then 200, then 320
		evictedFor(t, evicted(m, name), "The node was low on resource: memory. Threshold quantity: 100Mi, available: ")
	}
	var pressed time.Time
	var ended []time.Time
	var who []string
	for line := range strings.Lines(m.AgentLog(1 << 20)) {
		switch {
		case strings.Contains(line, "conditions=[MemoryPressure] before=[]"):
			pressed = loggedAt(t, line)
		case strings.Contains(line, " signal=") && strings.Contains(line, " uid="):
			ended = append(ended, loggedAt(t, line))
			_, pod, _ := strings.Cut(line, " pod=default/")
			pod, _, _ = strings.Cut(pod, "-edge ")
			who = append(who, pod)
		}
	}
	if !slices.Equal(who, []string{"hungry", "friend"}) || ended[0].Sub(pressed) < grace-grace/10 { // both events are logged a little later
		t.Errorf("under pressure from %v, %q were evicted at %v", pressed, who, ended)
	}
	now := m.Pods()
	for _, name := range []string{"critical-edge", "dearest-edge"} {
		if p := now[name]; !p.Ready() || containers(now)[name] != before[name] {
			t.Errorf("%s is %+v", name, p.Status)
		}
	}
	if want, page := "kubelet_evictions{eviction_signal=\"allocatableMemory.available\"} 2\n",
		get(t, a, "/metrics"); !strings.Contains(page, want) {
		t.Errorf("no %s", want)
	}
}

// loggedAt returns the time of a line in the agent's log.
func loggedAt(t *testing.T, line string) time.Time {
	t.Helper()
	word, _, _ := strings.Cut(line, " ")
	at, err := time.Parse("time="+time.RFC3339, word)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// evictConfig returns a KubeletConfiguration with additional lines.
func evictConfig(m *machine.Machine, lines string) string {
	return m.Kubelet("imageGCHighThresholdPercent: 100\n" + lines)
}

// onVolume returns a pod with an emptyDir volume at /v.
func onVolume(name, volume string, args ...string) string {
	return manifest(name, fmt.Sprintf("    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {%s}}]\n",
		volume), args...)
}

// evicted waits until a pod has been evicted.
func evicted(m *machine.Machine, name string) machine.Pod {
	return m.WaitPods(name+" to be evicted", func(pods map[string]machine.Pod) bool {
		return pods[name+
			"-edge"].Status.Phase == "Failed"
	})[name+"-edge"]
}

// checkEvictions checks that the metrics count one eviction for each of the given signals.
func checkEvictions(t *testing.T, a *machine.Agent, signals ...string) {
	t.Helper()
	page := get(t, a, "/metrics")
	for _, s := range signals {
		if want := fmt.Sprintf("kubelet_evictions{eviction_signal=%q} 1\n", s); !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
}

// A scarceResource is a resource that a node runs out of.
type scarceResource struct {
	of        string
	mkfs      string // command that formats the file system of the root directory
	config    string // the configuration; FREE in it stands for the least number of process IDs that should be free
	pod       string // the pod "greedy", which uses the resource up; TOTAL in it stands for a number of threads with which fewer are free
	signal    string
	resource  string
	condition string
	grace     time.Duration // grace period of the threshold
}

// TestEvictsFor checks that a pod that uses up a disk, inodes or process IDs is evicted. No other pod may be evicted. A soft threshold
// must wait for its grace period. After the eviction the resource must be free again.
func TestEvictsFor(t *testing.T) {
	t.Parallel()
	const ext4 = "mkfs.ext4 -q"
	fills := onVolume("greedy", "", "fill", "/v/file", "50")
	for _, x := range []scarceResource{
		{"disk", ext4, "evictionHard: {nodefs.available: 40%}\n", fills, "nodefs.available", "ephemeral-storage", "DiskPressure", 0},
		{"inodes", ext4 + " -N 1000", "evictionHard: {nodefs.inodesFree: 40%}\n", onVolume("greedy", "", "litter", "/v", "700"), "nodefs.inodesFree", "inodes", "DiskPressure", 0},
		{"disk, softly", ext4, "evictionHard: {memory.available: 1Mi}\nevictionSoft: {nodefs.available: 40%}\nevictionSoftGracePeriod: {nodefs.available: 4s}\nevictionMaxPodGracePeriod: 1\n",
			fills, "nodefs.available", "ephemeral-storage", "DiskPressure", 4 * time.Second},
		{"process IDs", ext4, "evictionHard: {pid.available: \"FREE\"}\n", onVolume("greedy", "", "fork", "TOTAL"), "pid.available", "pids", "PIDPressure", 0},
	} {
		t.Run(x.of, x.test)
	}
}

// countPIDs returns the number of processes and threads of a machine, and how many it can have.
func countPIDs(t *testing.T, m *machine.Machine) (used, limit int) {
	t.Helper()
	var most, threads, running int
	text := m.Run("cut", "-d ", "-f1,4", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/loadavg")
	var load float64
	if _, err := fmt.Sscanf(text, "%d\n%d\n%f %d/%d", &most, &threads, &load, &running, &used); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return used, min(most, threads)
}

func (x scarceResource) test(t *testing.T) {
	t.Parallel() // the tests mostly wait
	m := bootMachine(t)
	// Tests that run at the same time start and end more than 1000 threads. They must neither cause pressure nor end it.
	used, limit := countPIDs(t, m)
	m.Write("kubelet.yaml", evictConfig(m, strings.ReplaceAll(x.config, "FREE", fmt.Sprint(limit-used-3000))))
	m.Run("sh", "-c", fmt.Sprintf("mkdir %[1]s/kubelet; truncate -s 100M %[1]s/img; %[2]s %[1]s/img; mount -o loop %[1]s/img %[1]s/kubelet",
		m.Disk, x.mkfs))
	m.Write("manifests/small.yaml", onVolume("small", "sizeLimit: 10Mi", "fill", "/v/file", "5"))
	a := m.StartAgent()
	before := containers(m.WaitReady("small-edge"))
	m.Write("manifests/greedy.yaml", strings.ReplaceAll(x.pod, "TOTAL", fmt.Sprint(used+3500)))
	greedy := evicted(m, "greedy")
	evictedFor(t, greedy, "The node was low on resource: "+x.resource+". Threshold quantity: ")
	if !disrupted(greedy) {
		t.Errorf("%+v", greedy.Status.Conditions)
	}
	m.Await("its files and logs to be gone", func() bool {
		left, err := filepath.Glob(fmt.Sprintf("/proc/%d/root%s/kubelet/pods/%s/volumes/*/*/*", a.Pid, m.Disk, greedy.Metadata.UID))
		logs, bad := filepath.Glob(filepath.Join(m.Disk, "logs", "*greedy*", "c", "*.log"))
		return err == nil && bad == nil && len(left)+len(logs) == 0
	})
	if pods := m.Pods(); containers(pods)["small-edge"] != before["small-edge"] || !pods["small-edge"].Ready() {
		t.Errorf("the other pod's container was %v, and its status is %+v", before, pods["small-edge"].Status)
	}
	checkEvictions(t, a, x.signal)
	if want := fmt.Sprintf("kubelet_eviction_stats_age_seconds_count{eviction_signal=%q} 1\n",
		x.signal); !strings.Contains(get(t, a, "/metrics"), want) {
		t.Errorf("no %s", want)
	}
	var pressed, ended time.Time
	for line := range strings.Lines(m.AgentLog(1 << 20)) {
		switch {
		case strings.Contains(line, "conditions=["+x.condition+"] before=[]"):
			pressed = loggedAt(t, line)
		case strings.Contains(line, " signal=") && strings.Contains(line, " uid="):
			ended = loggedAt(t, line)
		}
	}
	if pressed.IsZero() || ended.Sub(pressed) < x.grace-x.grace/10 { // both lines are logged a little later
		t.Errorf("%s from %v, the pod was evicted at %v", x.condition, pressed, ended)
	}
}

// TestEvictsForImages checks that a full image file system is freed in the correct order. The unused image must be removed first. This
// does not free enough space, so the pod with the largest writable layer must be evicted, and no other pod.
func TestEvictsForImages(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	m.Boot()
	m.Write("kubelet.yaml", evictConfig(m, "evictionHard: {imagefs.available: 150Mi}\nimageMinimumGCAge: 1s\n"))
	m.Run("sh", "-c", fmt.Sprintf(
		"mkdir %[1]s/state; truncate -s 300M %[1]s/img; mkfs.ext4 -q -m 0 %[1]s/img; mount -o loop %[1]s/img %[1]s/state", m.Disk))
	a := m.StartAgent()
	for _, archive := range append(machine.ArchivesOf(t, map[string]int{"nobodys": 20}), machine.Archive(t)) {
		m.Islet("images", "import", archive)
	}
	m.Write("manifests/small.yaml", manifest("small", "", "fill", "/file", "5"))
	before := containers(m.WaitReady("small-edge"))
	m.Write("manifests/greedy.yaml", manifest("greedy", "", "fill", "/file", "180"))
	greedy := evicted(m, "greedy")
	evictedFor(t, greedy, "The node was low on resource: ephemeral-storage. Threshold quantity: 150Mi, available: ", "Container c was using ")
	if !disrupted(greedy) {
		t.Errorf("%+v", greedy.Status.Conditions)
	}
	m.Await("the disk to be free again", func() bool {
		var blocks, size int64
		fmt.Sscan(m.Run("stat", "-f", "-c", "%a %S", m.Disk+"/state"), &blocks, &size)
		return blocks*size > 250<<20
	})
	if pods := m.Pods(); containers(pods)["small-edge"] != before["small-edge"] || !pods["small-edge"].Ready() {
		t.Errorf("the other pod's container was %v, and its status is %+v", before, pods["small-edge"].Status)
	}
	if list := m.Islet("images", "ls"); strings.Contains(list, "nobodys") || !strings.Contains(list, "podtool") {
		t.Errorf("the images are\n%s", list)
	}
	checkEvictions(t, a, "imagefs.available")
	var removed, ended time.Time
	for line := range strings.Lines(m.AgentLog(1 << 20)) {
		switch {
		case strings.Contains(line, " image=") && strings.Contains(line, " tags=") && removed.IsZero():
			removed = loggedAt(t, line)
		case strings.Contains(line, " signal=") && strings.Contains(line, " uid="):
			ended = loggedAt(t, line)
		}
	}
	if removed.IsZero() || ended.Before(removed) {
		t.Errorf("the image was removed at %v, the pod was evicted at %v", removed, ended)
	}
}

// TestEvictsForLimits checks that a pod is evicted if it exceeds the size limit of a volume, the ephemeral storage limit of a container or
// the sum of these limits. Other pods must continue to run.
func TestEvictsForLimits(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("kubelet.yaml", evictConfig(m, "evictionHard: {memory.available: 1Mi}\n"))
	limit := func(size string) string {
		return "    resources: {limits: {ephemeral-storage: " + size + "}}\n"
	}
	roomy := fmt.Sprintf("  - {name: d, image: %q, imagePullPolicy: Never, args: [sleep], resources: {limits: {ephemeral-storage: 40Mi}}}\n",
		machine.Image)
	for name, text := range map[string]string{
		"small":     onVolume("small", "sizeLimit: 10Mi", "fill", "/v/file", "5"),
		"volume":    onVolume("volume", "sizeLimit: 10Mi", "fill", "/v/file", "12"),
		"container": manifest("container", limit("5Mi")+roomy, "fill", "/file", "8"),
		"within":    manifest("within", limit("10Mi")+roomy, "fill", "/file", "8"),
		"whole":     strings.Replace(onVolume("whole", "", "fill", "/v/file", "8"), "    volumeMounts", limit("5Mi")+"    volumeMounts", 1),
	} {
		m.Write("manifests/"+name+".yaml", text)
	}
	a := m.StartAgent()
	for name, words := range map[string]string{
		"volume":    `Usage of EmptyDir volume "v" exceeds the limit "10Mi". `,
		"container": `Container c exceeded its local ephemeral storage limit "5Mi". `,
		"whole":     "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
	} {
		evictedFor(t, evicted(m, name), words)
	}
	for _, name := range []string{"small-edge", "within-edge"} {
		if p := m.Pods()[name]; !p.Ready() {
			t.Errorf("the pod within its limit is %+v", p.Status)
		}
	}
	checkEvictions(t, a, "emptydirfs.limit", "ephemeralcontainerfs.limit", "ephemeralpodfs.limit")
}
