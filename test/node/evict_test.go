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
	if p.Status.Phase != "Failed" || p.Status.Reason != "Evicted" ||
		slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.Status.Message, w) }) {
		t.Errorf("%s is %+v, and lacks some of %q", p.Metadata.Name, p.Status, words)
	}
}

// TestEvictsForMemory: of pods that have more memory together than is left for them, the
// right one ends, and no other, at the kernel's word and not when a timer looks; a killed
// agent does not forget that, and when another pod goes it comes back.
func TestEvictsForMemory(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
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

// TestEvictsSoftlyForMemory: a soft threshold counts after its time of grace, and then so many
// pods end, each by its rank, that what is to be reclaimed beyond it is free.
func TestEvictsSoftlyForMemory(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
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
	for _, name := range []string{"hungry", "friend"} { // 80 MiB are free, then 200, then 320
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
	if !slices.Equal(who, []string{"hungry", "friend"}) || ended[0].Sub(pressed) < grace-grace/10 { // both are logged a little later
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

// evictConfig is a KubeletConfiguration with further lines.
func evictConfig(m *machine.Machine, lines string) string {
	return m.Kubelet("imageGCHighThresholdPercent: 100\n" + lines)
}

// onVolume is a pod with a volume as /v.
func onVolume(name, volume string, args ...string) string {
	return manifest(name, fmt.Sprintf("    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {%s}}]\n",
		volume), args...)
}

// evicted waits until a pod is.
func evicted(m *machine.Machine, name string) machine.Pod {
	return m.WaitPods(name+" to be evicted", func(pods map[string]machine.Pod) bool {
		return pods[name+
			"-edge"].Status.Phase == "Failed"
	})[name+"-edge"]
}

// checkEvictions fails unless evictions were counted, each once.
func checkEvictions(t *testing.T, a *machine.Agent, signals ...string) {
	t.Helper()
	page := get(t, a, "/metrics")
	for _, s := range signals {
		if want := fmt.Sprintf("kubelet_evictions{eviction_signal=%q} 1\n", s); !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
}

// A scarce thing is what a node runs short of.
type scarce struct {
	of        string
	mkfs      string // makes the file system of the root directory
	config    string // FREE stands for 700 process IDs less than are free
	pod       string // that takes it, as "greedy"
	signal    string
	resource  string
	condition string
	grace     time.Duration // of the threshold
}

// TestEvictsFor: a pod that takes what is left of a disk, of its inodes or of process IDs ends
// for that, of a soft threshold after its time of grace, and no other; then it is free again.
func TestEvictsFor(t *testing.T) {
	t.Parallel()
	const ext4 = "mkfs.ext4 -q"
	fills := onVolume("greedy", "", "fill", "/v/file", "50")
	for _, x := range []scarce{
		{"disk", ext4, "evictionHard: {nodefs.available: 40%}\n", fills, "nodefs.available", "ephemeral-storage", "DiskPressure", 0},
		{"inodes", ext4 + " -N 1000", "evictionHard: {nodefs.inodesFree: 40%}\n", onVolume("greedy", "", "litter", "/v", "700"), "nodefs.inodesFree", "inodes", "DiskPressure", 0},
		{"disk, softly", ext4, "evictionHard: {memory.available: 1Mi}\nevictionSoft: {nodefs.available: 40%}\nevictionSoftGracePeriod: {nodefs.available: 4s}\nevictionMaxPodGracePeriod: 1\n",
			fills, "nodefs.available", "ephemeral-storage", "DiskPressure", 4 * time.Second},
		{"process IDs", ext4, "evictionHard: {pid.available: \"FREE\"}\n", onVolume("greedy", "", "fork", "1500"), "pid.available", "pids", "PIDPressure", 0},
	} {
		t.Run(x.of, x.test)
	}
}

// freePIDs is how many processes and threads there may be yet in a machine.
func freePIDs(t *testing.T, m *machine.Machine) int {
	t.Helper()
	var most, threads, running, all int
	text := m.Run("cut", "-d ", "-f1,4", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/loadavg")
	var load float64
	if _, err := fmt.Sscanf(text, "%d\n%d\n%f %d/%d", &most, &threads, &load, &running, &all); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return min(most, threads) - all
}

func (x scarce) test(t *testing.T) {
	t.Parallel() // they mostly wait
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	m.Write("kubelet.yaml", evictConfig(m, strings.ReplaceAll(x.config, "FREE", fmt.Sprint(freePIDs(t, m)-700))))
	m.Run("sh", "-c", fmt.Sprintf("mkdir %[1]s/kubelet; truncate -s 100M %[1]s/img; %[2]s %[1]s/img; mount -o loop %[1]s/img %[1]s/kubelet",
		m.Disk, x.mkfs))
	m.Write("manifests/small.yaml", onVolume("small", "sizeLimit: 10Mi", "fill", "/v/file", "5"))
	a := m.StartAgent()
	before := containers(m.WaitReady("small-edge"))
	m.Write("manifests/greedy.yaml", x.pod)
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
		t.Errorf("the other pod was %v, and is %+v", before, pods["small-edge"].Status)
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
	if pressed.IsZero() || ended.Sub(pressed) < x.grace-x.grace/10 { // both are logged a little later
		t.Errorf("%s from %v, the pod was evicted at %v", x.condition, pressed, ended)
	}
}

// TestEvictsForImages: on the disk of images and of what containers write the image that nothing
// needs goes first; as that is not enough, the pod that has most of it ends, and no other.
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
		t.Errorf("the other pod was %v, and is %+v", before, pods["small-edge"].Status)
	}
	if list := m.Islet("images", "ls"); strings.Contains(list, "nobodys") || !strings.Contains(list, "podtool") {
		t.Errorf("the images are\n%s", list)
	}
	checkEvictions(t, a, "imagefs.available")
	log := m.AgentLog(1 << 20)
	if removed, ended := strings.Index(log, `msg="image removed"`), strings.Index(log, "pod is evicted"); removed < 0 || ended < removed {
		t.Errorf("the image was not removed first:\n%s", log)
	}
}

// TestEvictsForLimits: a pod that has more files than its volume, a container of it or all of
// them together may have ends for that, and no other does.
func TestEvictsForLimits(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
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
