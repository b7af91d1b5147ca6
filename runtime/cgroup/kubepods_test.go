package cgroup

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/eventtest"
)

// TestMain compares the events of the tests with docs/events.md. Without root it skips the tests.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	os.Exit(eventtest.Main(m, "cgroup"))
}

// A hierarchy is the root cgroup of a test. It records the events.
type hierarchy struct {
	t      *testing.T
	root   string
	events []string
}

func newHierarchy(t *testing.T) *hierarchy {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	h := &hierarchy{t: t, root: "islet-all-" + strconv.Itoa(os.Getpid())}
	t.Cleanup(func() {
		for _, d := range dirs(h.root) {
			removeTree(d)
		}
	})
	return h
}

func (h *hierarchy) pods(c Config) *Pods {
	c.Driver, c.Root, c.Log = Cgroupfs, "/"+h.root, slog.New(slog.DiscardHandler)
	c.RecordEvent = func(warning bool, reason, message string) {
		kind := v1.EventTypeNormal
		if warning {
			kind = v1.EventTypeWarning
		}
		eventtest.RecordEvent(kind, reason, message)
		h.events = append(h.events, fmt.Sprint(warning, " ", reason, " ", message))
	}
	p, err := New(c)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// TestAll checks that the first pod creates the cgroup kubepods with its limits. When the agent restarts with a new configuration, Start
// applies the new limits.
func TestAll(t *testing.T) {
	h := newHierarchy(t)
	at := "/" + h.root + "/kubepods"
	p := h.pods(Config{Kubepods: Limits{Milli: 1500, Memory: 512 << 20, PIDs: 1234}})
	if err := p.Start(); err != nil || len(dirs(at)) > 0 {
		t.Fatalf("Start created kubepods: %v, %v", dirs(at), err)
	}
	if err := p.Prepare(t.Context(), pod("a", v1.ResourceRequirements{})); err != nil {
		t.Fatal(err)
	}
	expect(t, at, "memory.limit_in_bytes memory.max", "536870912")
	expect(t, at, "cpu.shares cpu.weight", "1536 59 60")
	expect(t, at, "pids.max", "1234")
	if len(h.events) != 1 || h.events[0] != "false NodeAllocatableEnforced Updated Node Allocatable limit across pods" {
		t.Errorf("events: %q", h.events)
	}
	next := h.pods(Config{Kubepods: Limits{Milli: 500, Memory: 256 << 20, PIDs: 99}})
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	expect(t, at, "memory.limit_in_bytes memory.max", "268435456")
	expect(t, at, "cpu.shares cpu.weight", "512 20")
	expect(t, at, "pids.max", "99")
}

// TestAllUseMore checks a new memory limit below the usage of the pods. No pod is killed. An event is recorded, and the limit is set when
// the usage is low enough.
func TestAllUseMore(t *testing.T) {
	h := newHierarchy(t)
	end := h.use(usesMemory)
	next := h.pods(Config{Kubepods: Limits{Memory: 4 << 20}})
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	if len(h.events) == 0 || !strings.HasPrefix(h.events[len(h.events)-1],
		`true FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits`) {
		t.Errorf("events: %q", h.events)
	}
	end()
	next.retryLimits()
	expect(t, "/"+h.root+"/kubepods", "memory.limit_in_bytes memory.max", "4194304")
}

// Shell commands that use 20 MB.
const (
	usesMemory = `x=$(head -c 20000000 /dev/zero | tr '\0' x)`
	usesCache  = `head -c 20000000 /dev/zero >"$FILE" && sync "$FILE"`
)

// use runs a shell command in the cgroup of the pod "a", which it creates. Then the shell waits until the test calls end. The function end
// checks that the shell was not killed.
func (h *hierarchy) use(command string) (end func()) {
	h.t.Helper()
	if err := h.pods(Config{}).Prepare(h.t.Context(), pod("a", v1.ResourceRequirements{})); err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "read go; "+command+"; echo full; read end")
	cmd.Env = append(os.Environ(), "FILE="+filepath.Join(h.t.TempDir(), "file"))
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	for _, d := range dirs("/" + h.root + "/kubepods/besteffort/poda") {
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			h.t.Fatal(err)
		}
	}
	fmt.Fprintln(in, "go")
	out.Read(make([]byte, 8))
	return func() {
		h.t.Helper()
		fmt.Fprintln(in, "end")
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("the running process failed: %v", err)
		}
	}
}

// TestSystemUsesMore checks a memory limit of a system cgroup below the memory in use. The agent starts, the other limits are set, and no
// process is killed. The memory limit is set when the usage is low enough, although no pod changes. This is tried again until it succeeds,
// also after an error of another kind.
func TestSystemUsesMore(t *testing.T) {
	h := newHierarchy(t)
	end := h.use(usesMemory)
	other := h.root + "-other"
	t.Cleanup(func() {
		for _, d := range dirs(other) {
			removeTree(d)
		}
	})
	limits := Limits{Milli: 500, Memory: 4 << 20, PIDs: 321}
	p := h.pods(Config{System: []EnforcedCgroup{{For: "System Reserved", Cgroup: "/" + h.root, Limits: limits}}})
	synctest.Test(t, func(t *testing.T) {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if len(h.events) == 0 || !strings.HasPrefix(h.events[len(h.events)-1],
			`true FailedNodeAllocatableEnforcement Failed to enforce System Reserved Cgroup Limits`) {
			t.Errorf("events: %q", h.events)
		}
		expect(t, "/"+h.root, "cpu.shares cpu.weight", "512 20")
		expect(t, "/"+h.root, "pids.max", "321")
		p.mu.Lock()
		p.unlimited = append([]EnforcedCgroup{{For: "Kube Reserved", Cgroup: "/" + other, Limits: limits}}, p.unlimited...)
		p.mu.Unlock()
		time.Sleep(2*retryAfter + time.Second)
		if len(h.events) != 1 {
			t.Errorf("a failure is reported again: %q", h.events)
		}
		end()
		time.Sleep(retryAfter)
		expect(t, "/"+h.root, "memory.limit_in_bytes memory.max", "4194304")
		for _, d := range dirs(h.root) {
			if err := os.Mkdir(filepath.Join(filepath.Dir(d), other), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(retryAfter)
		expect(t, "/"+other, "memory.limit_in_bytes memory.max", "4194304")
		p.mu.Lock()
		if len(p.unlimited) > 0 || p.retrying {
			t.Errorf("without limits: %v", p.unlimited)
		}
		p.mu.Unlock()
	})
}

// TestCacheIsNoUse checks that the page cache does not prevent a smaller memory limit.
func TestCacheIsNoUse(t *testing.T) {
	var st unix.Statfs_t
	if unix.Statfs(t.TempDir(), &st) != nil || st.Type == unix.TMPFS_MAGIC {
		t.Skip("the files of a tmpfs are not in the page cache")
	}
	h := newHierarchy(t)
	end := h.use(usesCache)
	for _, c := range []Config{
		{System: []EnforcedCgroup{{For: "System Reserved", Cgroup: "/" + h.root, Limits: Limits{Memory: 8 << 20}}}},
		{Kubepods: Limits{Memory: 4 << 20}},
	} {
		if err := h.pods(c).Start(); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "/"+h.root, "memory.limit_in_bytes memory.max", "8388608")
	expect(t, "/"+h.root+"/kubepods", "memory.limit_in_bytes memory.max", "4194304")
	for _, e := range h.events {
		if strings.HasPrefix(e, "true") {
			t.Error(e)
		}
	}
	end()
}

// TestOthers checks that Start sets the limits of system cgroups. A missing cgroup is an error.
func TestOthers(t *testing.T) {
	h := newHierarchy(t)
	held := EnforcedCgroup{For: "Kube Reserved", Cgroup: "/" + h.root, Limits: LimitsOf(list("cpu", "500m", "memory", "64Mi", "pid", "321"), "pid", false)}
	err := h.pods(Config{System: []EnforcedCgroup{held}}).Start()
	if err == nil || !strings.Contains(err.Error(),
		fmt.Sprintf("Failed to enforce Kube Reserved Cgroup Limits on %q: cgroup [%q] has some missing paths", "/"+h.root, h.root)) &&
		!strings.Contains(err.Error(), "could not read controllers") {
		t.Fatalf("a missing cgroup: %v", err)
	}
	if err := h.pods(Config{}).Prepare(t.Context(), pod("a", v1.ResourceRequirements{})); err != nil { // creates the root cgroup
		t.Fatal(err)
	}
	for _, d := range []string{"cpuset", "systemd"} { // pods do not need these controllers
		if dir := filepath.Join("/sys/fs/cgroup", d); exists(dir) {
			os.Mkdir(filepath.Join(dir, h.root), 0o755)
		}
	}
	if err := h.pods(Config{System: []EnforcedCgroup{held}}).Start(); err != nil {
		t.Fatal(err)
	}
	expect(t, "/"+h.root, "memory.limit_in_bytes memory.max", "67108864")
	expect(t, "/"+h.root, "cpu.shares cpu.weight", "512 20")
	expect(t, "/"+h.root, "pids.max", "321")
	if last := h.events[len(h.events)-1]; last != "false NodeAllocatableEnforced Updated limits on kube reserved cgroup /"+h.root {
		t.Errorf("events: %q", last)
	}
	held.Limits = LimitsOf(list("cpu", "250m", "memory", "1Mi"), "pid", true)
	if err := h.pods(Config{System: []EnforcedCgroup{held}}).Start(); err != nil {
		t.Fatal(err)
	}
	expect(t, "/"+h.root, "cpu.shares cpu.weight", "256 10")
	expect(t, "/"+h.root, "memory.limit_in_bytes memory.max", "67108864")
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// TestReserved checks that Memory.Percent reserves a part of the requested memory of a QoS class. The memory limits of the lower classes
// are reduced by this part.
func TestReserved(t *testing.T) {
	h := newHierarchy(t)
	sure := pod("g", v1.ResourceRequirements{Requests: list("cpu", "1", "memory", "100Mi"), Limits: list("cpu", "1", "memory", "100Mi")})
	burst := pod("b", v1.ResourceRequirements{Requests: list("memory", "200Mi")})
	active := []*v1.Pod{sure, burst}
	p := h.pods(Config{Kubepods: Limits{Memory: 1 << 30}, Memory: Memory{Percent: 50, Active: func() []*v1.Pod { return active }}})
	for _, pod := range active {
		if err := p.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	at := "/" + h.root + "/kubepods"
	expect(t, at+"/burstable", "memory.limit_in_bytes memory.max", strconv.Itoa(1<<30-50<<20))
	expect(t, at+"/besteffort", "memory.limit_in_bytes memory.max", strconv.Itoa(1<<30-150<<20))
	burst.Spec.Containers[0].Resources.Requests = list("memory", "300Mi") // resized before its start
	if err := p.Prepare(t.Context(), burst); err != nil {
		t.Fatal(err)
	}
	expect(t, at+"/besteffort", "memory.limit_in_bytes memory.max", strconv.Itoa(1<<30-200<<20))
	burst.Spec.Containers[0].Resources.Requests = list("memory", "200Mi") // resized while it runs
	if err := p.Grow(t.Context(), burst); err != nil {
		t.Fatal(err)
	}
	expect(t, at+"/besteffort", "memory.limit_in_bytes memory.max", strconv.Itoa(1<<30-150<<20))
	sure.Status.Phase = v1.PodSucceeded
	if err := p.Release(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	expect(t, at+"/burstable", "memory.limit_in_bytes memory.max", strconv.Itoa(1<<30))
	expect(t, at+"/besteffort", "memory.limit_in_bytes memory.max", strconv.Itoa(1<<30-100<<20))
}

// TestTiered checks the memory protection of the QoS classes with cgroup v2 (KEP-2570).
func TestTiered(t *testing.T) {
	sure := pod("g", v1.ResourceRequirements{Requests: list("cpu", "1", "memory", "100Mi"), Limits: list("cpu", "1", "memory", "100Mi")})
	burst := pod("b", v1.ResourceRequirements{Requests: list("memory", "200Mi")})
	over := pod("o", v1.ResourceRequirements{Requests: list("memory", "200Mi")})
	over.Status.Phase = v1.PodFailed
	level := pod("l", v1.ResourceRequirements{})
	level.Spec.Resources = &v1.ResourceRequirements{Requests: list("memory", "100Mi"), Limits: list("memory", "200Mi")}
	told := ""
	k := Memory{
		Unified: true, QoS: true, Tiered: true, Throttle: 0.9, Active: func() []*v1.Pod { return []*v1.Pod{sure, burst, over} },
		Protected: func(min, low int64) { told = fmt.Sprint(min, low) },
	}
	for pod, want := range map[*v1.Pod]string{
		sure:  "map[memory.high:max memory.low:0 memory.min:104857600]",
		burst: "map[memory.high:max memory.low:209715200 memory.min:0]",
		level: "map[memory.high:199229440 memory.low:104857600 memory.min:0]",
	} {
		if got := fmt.Sprint(k.forPod(pod)); got != want {
			t.Errorf("%s has %v, not %v", pod.UID, got, want)
		}
		none := k
		none.QoS = false
		if got := fmt.Sprint(none.forPod(pod)); got != "map[memory.high:max memory.low:0 memory.min:0]" {
			t.Errorf("%s has %v without the feature", pod.UID, got)
		}
		if got := (Memory{}).forPod(pod); got != nil {
			t.Errorf("%s has %v on cgroup v1", pod.UID, got)
		}
	}
	got := k.classLimits(1 << 30)
	if all, b := got[v1.PodQOSGuaranteed].Unified, got[v1.PodQOSBurstable].Unified; len(got) != 2 ||
		fmt.Sprint(all) != "map[memory.low:209715200 memory.min:314572800]" || fmt.Sprint(b) != "map[memory.low:209715200]" {
		t.Errorf("classes keep %v, %v", all, b)
	}
	if told != "104857600 209715200" {
		t.Errorf("protected: %s", told)
	}
	k.Tiered = false
	if got := k.classLimits(1 << 30); len(got) > 0 {
		t.Errorf("without the policy %v", got)
	}
}

func TestLimitsOf(t *testing.T) {
	l := LimitsOf(list("cpu", "1500m", "memory", "1Gi", "pid", "7", "hugepages-2Mi", "4Mi"), "pid", false)
	if l.Milli != 1500 || l.Memory != 1<<30 || l.PIDs != 7 || len(l.HugePages) != 1 || l.HugePages[0] != (demand.HugePages{Size: "2MB", Bytes: 4 << 20}) {
		t.Errorf("%+v", l)
	}
	if l := LimitsOf(list("cpu", "1500m", "memory", "1Gi", "pid", "7"), "pid", true); l.Milli != 1500 || l.Memory != 0 || l.PIDs != 0 {
		t.Errorf("compressible: %+v", l)
	}
}

// TestParse checks that a cgroup path is parsed in the notation of the configured cgroup driver.
func TestParse(t *testing.T) {
	for in, want := range map[string]string{"/system.slice": "system", "/a.slice/a-b_c.slice": "a/b-c", "kube": "kube"} {
		if got := strings.Join((&Pods{systemd: true}).parsePath(in), "/"); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
	if got := strings.Join((&Pods{}).parsePath("/kube/x.slice"), "/"); got != "kube/x.slice" {
		t.Errorf("cgroupfs: %s", got)
	}
}
