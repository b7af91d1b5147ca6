package cgroup

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/podtest"
)

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

func pod(uid string, rs ...v1.ResourceRequirements) *v1.Pod {
	p := podtest.New("", podtest.UID(uid), podtest.Containers())
	for _, r := range rs {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: r})
	}
	return p
}

func TestClassAndLimits(t *testing.T) {
	full := v1.ResourceRequirements{Limits: list("cpu", "500m", "memory", "64Mi"), Requests: list("cpu", "500m", "memory", "64Mi")}
	for name, c := range map[string]struct {
		pod    *v1.Pod
		class  v1.PodQOSClass
		shares uint64
		quota  int64
		memory int64
	}{
		"nothing":         {pod("a", v1.ResourceRequirements{}), v1.PodQOSBestEffort, 2, 0, 0},
		"request":         {pod("a", v1.ResourceRequirements{Requests: list("cpu", "100m")}), v1.PodQOSBurstable, 102, 0, 0},
		"all":             {pod("a", full, full), v1.PodQOSGuaranteed, 1024, 100000, 128 << 20},
		"limits only":     {pod("a", v1.ResourceRequirements{Limits: full.Limits}), v1.PodQOSGuaranteed, 2, 50000, 64 << 20}, // requests are set by defaulting, not here
		"one without":     {pod("a", full, v1.ResourceRequirements{}), v1.PodQOSBurstable, 512, 0, 0},
		"limit > request": {pod("a", v1.ResourceRequirements{Limits: full.Limits, Requests: list("cpu", "1m", "memory", "1Mi")}), v1.PodQOSBurstable, 2, 50000, 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got := demand.Class(c.pod); got != c.class {
				t.Errorf("class %s, want %s", got, c.class)
			}
			r := podLimits(c.pod, 0, 0)
			if r.CpuShares != c.shares || r.CpuQuota != c.quota || r.Memory != c.memory {
				t.Errorf("shares %d quota %d memory %d, want %d %d %d", r.CpuShares, r.CpuQuota, r.Memory, c.shares, c.quota, c.memory)
			}
			if r := podLimits(c.pod, 0, 20_000); r.CpuQuota != c.quota/5 {
				t.Errorf("quota %d in 20 ms, want %d", r.CpuQuota, c.quota/5)
			}
			if r := podLimits(c.pod, 0, -1); r.CpuQuota != 0 || r.CpuPeriod != 0 {
				t.Errorf("quota %d, period %d, without CPU quotas", r.CpuQuota, r.CpuPeriod)
			}
		})
	}
}

func TestInitContainers(t *testing.T) {
	p := pod("a", v1.ResourceRequirements{Requests: list("cpu", "100m")})
	always := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{
		{RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: list("cpu", "50m")}},
		{Resources: v1.ResourceRequirements{Requests: list("cpu", "300m")}},
	}
	if got := cpuMillis(demand.Requests(p)); got != 350 {
		t.Errorf("total %d, want 350", got)
	}
}

func TestNames(t *testing.T) {
	n := podName(nil, v1.PodQOSBurstable, "1-2")
	if got, want := n.cgroupfsPath(), "/kubepods/burstable/pod1-2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := n.slicePath(), "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c := n.cgroupConfig(true, nil)
	if c.Name != "kubepods-burstable-pod1_2.slice" || c.Parent != "kubepods-burstable.slice" {
		t.Errorf("unit %s below %s", c.Name, c.Parent)
	}
}

// TestPods checks that the cgroup of a pod is created with its limits. Release kills the processes in the cgroup and removes the cgroup.
func TestPods(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := "islet-test-" + strconv.Itoa(os.Getpid())
	p, err := New(Config{Driver: Cgroupfs, Root: "/" + root, PodPidsLimit: 77, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, d := range dirs(root) {
			removeTree(d)
		}
	})
	ctx := t.Context()
	b := pod("b1", v1.ResourceRequirements{Requests: list("cpu", "500m"), Limits: list("memory", "64Mi")})
	for range 2 {
		if err := p.Prepare(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	var cfg api.PodSandboxConfig
	if err := p.Sandbox(ctx, b, &cfg); err != nil {
		t.Fatal(err)
	}
	want := "/" + root + "/kubepods/burstable/podb1"
	if cfg.Linux.CgroupParent != want {
		t.Fatalf("parent %s, want %s", cfg.Linux.CgroupParent, want)
	}
	expect(t, want, "pids.max", "77")
	expect(t, "/"+root+"/kubepods", "pids.max", strconv.FormatInt(findPIDLimits(kernelDir, 0).kubepods, 10))
	expect(t, want, "memory.limit_in_bytes memory.max", "67108864")
	expect(t, filepath.Dir(want), "cpu.shares cpu.weight", "512 59 20")

	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for _, d := range dirs(want) {
		inner := filepath.Join(d, "container")
		if err := os.Mkdir(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(inner, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0)
	}
	go cmd.Wait()
	for range 2 {
		if err := p.Release(ctx, "b1"); err != nil {
			t.Fatal(err)
		}
	}
	if left := dirs(want); len(left) > 0 {
		t.Errorf("remaining directories: %v", left)
	}
	if err := p.Release(ctx, "never"); err != nil {
		t.Error(err)
	}
	other := filepath.Join(dirs("/" + root)[0], "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.Clean(); err != nil || len(dirs("/"+root)) != 1 {
		t.Errorf("with another child cgroup: %v (%v)", dirs("/"+root), err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if err := p.Clean(); err != nil || len(dirs("/"+root)) != 0 {
		t.Errorf("after Clean: %v (%v)", dirs("/"+root), err)
	}
}

// TestDefaultPIDs checks the default PID limits of kubepods and of a pod.
func TestDefaultPIDs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := "islet-pids-" + strconv.Itoa(os.Getpid())
	p, err := New(Config{Driver: Cgroupfs, Root: "/" + root, PodPidsLimit: -1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, d := range dirs(root) {
			removeTree(d)
		}
	})
	if err := p.Prepare(t.Context(), pod("p1", v1.ResourceRequirements{})); err != nil {
		t.Fatal(err)
	}
	l := findPIDLimits(kernelDir, -1)
	if l.pod <= 0 || l.pod >= l.kubepods {
		t.Fatalf("limits %+v", l)
	}
	expect(t, "/"+root+"/kubepods", "pids.max", strconv.FormatInt(l.kubepods, 10))
	expect(t, "/"+root+"/kubepods/besteffort/podp1", "pids.max", strconv.FormatInt(l.pod, 10))
	if err := p.Release(t.Context(), "p1"); err != nil {
		t.Error(err)
	}
	if err := p.Clean(); err != nil {
		t.Error(err)
	}
}

// expect compares the value of a cgroup's file with the wanted value. The file can have different names with cgroup v1 and v2. The text
// files contains all its names, and the text wants contains all allowed values.
func expect(t *testing.T, path, files, wants string) {
	t.Helper()
	for _, d := range dirs(path) {
		for _, f := range strings.Fields(files) {
			b, err := os.ReadFile(filepath.Join(d, f))
			if err != nil {
				continue
			}
			got := strings.TrimSpace(string(b))
			for _, w := range strings.Fields(wants) {
				if got == w {
					return
				}
			}
			t.Errorf("%s of %s is %s, want %s", f, path, got, wants)
			return
		}
	}
	t.Errorf("%s has none of %s", path, files)
}

// dirs returns the directories of a cgroup, one in each hierarchy.
func dirs(path string) []string {
	v1, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", path))
	v2, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", path))
	return append(v1, v2...)
}

func removeTree(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(dir, e.Name()))
		}
	}
	os.Remove(dir)
}
