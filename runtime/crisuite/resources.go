package crisuite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// updateContainer changes the limits of a container.
func (b *bench) updateContainer(id string, l *api.LinuxContainerResources) error {
	_, err := b.Runtime.UpdateContainerResources(b.ctx, &api.UpdateContainerResourcesRequest{ContainerId: id, Linux: l})
	return err
}

// cgroupV2 reports whether the host uses only cgroup v2.
func cgroupV2() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// limitOf returns the content of a file of a process's cgroup. The file has the name v1 if the host uses cgroup v1, and
// the name v2 if it uses cgroup v2.
func (b *bench) limitOf(pid int, controller, v1, v2 string) string {
	b.Helper()
	for line := range strings.Lines(cgroupsOf(b, pid)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		path := ""
		switch {
		case cgroupV2() && part[0] == "0":
			path = filepath.Join("/sys/fs/cgroup", part[2], v2)
		case !cgroupV2() && part[1] != "" && strings.Contains(","+part[1]+",", ","+controller+","):
			path = filepath.Join("/sys/fs/cgroup", controller, part[2], v1)
		default:
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	b.Fatalf("process %d has no cgroup of the controller %s", pid, controller)
	return ""
}

// testUpdateAll changes every limit of a running container and checks the kernel's files.
func testUpdateAll(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "wait")
	c.Linux.Resources = &api.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512,
		MemoryLimitInBytes: 256 << 20, MemorySwapLimitInBytes: 256 << 20, OomScoreAdj: 500,
	}
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "waiting")
	// A repeated request must succeed. The swap limit must follow the memory limit.
	for range 2 {
		if err := b.updateContainer(id, &api.LinuxContainerResources{
			CpuQuota: 70000, CpuShares: 1024, MemoryLimitInBytes: 300 << 20, OomScoreAdj: 900,
		}); err != nil {
			t.Fatal(err)
		}
	}
	pid := b.containerPID(id)
	if got := b.limitOf(pid, "cpu", "cpu.cfs_quota_us", "cpu.max"); got != "70000" && got != "70000 100000" {
		t.Errorf("CPU quota %q", got)
	}
	if got := b.limitOf(pid, "memory", "memory.limit_in_bytes", "memory.max"); got != fmt.Sprint(300<<20) {
		t.Errorf("memory limit %q", got)
	}
	if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); err != nil || strings.TrimSpace(string(got)) != "900" {
		t.Errorf("oom_score_adj %q, %v", got, err)
	}
	l := b.status(id).GetResources().GetLinux()
	if l.GetCpuQuota() != 70000 || l.GetCpuPeriod() != 100000 || l.GetCpuShares() != 1024 ||
		l.GetMemoryLimitInBytes() != 300<<20 || l.GetOomScoreAdj() != 900 {
		t.Errorf("the status has %v", l)
	}
	if err := b.updateContainer(id, &api.LinuxContainerResources{CpuQuota: -1}); err != nil {
		t.Fatal(err)
	}
	if got := b.limitOf(pid, "cpu", "cpu.cfs_quota_us", "cpu.max"); got != "-1" && got != "max 100000" {
		t.Errorf("without a quota: %q", got)
	}
}

// testUpdateRefused checks that an invalid update is rejected, changes nothing and does not end the
// container.
func testUpdateRefused(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "alloc", "60", "wait")
	c.Linux.Resources = &api.LinuxContainerResources{MemoryLimitInBytes: 256 << 20, CpuPeriod: 100000, CpuQuota: 50000}
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "waiting")
	bad := map[string]*api.LinuxContainerResources{
		"memory below usage": {MemoryLimitInBytes: 16 << 20, CpuQuota: 20000},
		"negative":           {MemoryLimitInBytes: -5},
		"huge page":          {HugepageLimits: []*api.HugepageLimit{{PageSize: "../../x", Limit: 1}}},
		"other's file":       {Unified: map[string]string{"../memory.max": "1"}},
		"no CPU":             {CpusetCpus: "4095", CpuQuota: 20000},
	}
	if !cgroupV2() {
		bad["unified on v1"] = &api.LinuxContainerResources{Unified: map[string]string{"memory.high": "1"}}
	}
	for name, l := range bad {
		if err := b.updateContainer(id, l); err == nil {
			t.Errorf("%s: accepted", name)
		}
		st, l := b.status(id), b.status(id).GetResources().GetLinux()
		if st.State != api.ContainerState_CONTAINER_RUNNING || l.GetMemoryLimitInBytes() != 256<<20 || l.GetCpuQuota() != 50000 {
			t.Errorf("%s: the resources afterwards are %v", name, st)
		}
		if got := b.limitOf(b.containerPID(id), "cpu", "cpu.cfs_quota_us", "cpu.max"); got != "50000" && got != "50000 100000" {
			t.Errorf("%s: the CPU quota is %q", name, got)
		}
	}
	must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id}))(b)
	if err := b.updateContainer(id, &api.LinuxContainerResources{CpuQuota: 60000}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a container that has ended: %v", err)
	}
}

// testUpdateCreated checks that an update of a created container has taken effect when the container starts.
func testUpdateCreated(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "wait")
	c.Linux.Resources.MemoryLimitInBytes = 256 << 20
	id := b.create(pod, cfg, c)
	if err := b.updateContainer(id, &api.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, OomScoreAdj: 800}); err != nil {
		t.Fatal(err)
	}
	b.start(id)
	b.awaitLog(c, "waiting")
	pid := b.containerPID(id)
	if got := b.limitOf(pid, "memory", "memory.limit_in_bytes", "memory.max"); got != fmt.Sprint(128<<20) {
		t.Errorf("memory limit %q", got)
	}
	if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); err != nil || strings.TrimSpace(string(got)) != "800" {
		t.Errorf("oom_score_adj %q, %v", got, err)
	}
}

// testUpdatePod checks that UpdatePodSandboxResources stores the resources of a pod.
func testUpdatePod(t *testing.T, b *bench) {
	pod := b.runPod(b.podConfig())
	for range 2 {
		must(b.Runtime.UpdatePodSandboxResources(b.ctx, &api.UpdatePodSandboxResourcesRequest{
			PodSandboxId: pod, Overhead: &api.LinuxContainerResources{CpuShares: 7},
			Resources: &api.LinuxContainerResources{MemoryLimitInBytes: 12345678},
		}))(b)
	}
	if b.Kernel {
		st := must(b.Runtime.PodSandboxStatus(b.ctx, &api.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true}))(b)
		if info := fmt.Sprint(st.Info); !strings.Contains(info, "12345678") {
			t.Errorf("the status does not contain the resources: %s", info)
		}
	}
	_, err := b.Runtime.UpdatePodSandboxResources(b.ctx, &api.UpdatePodSandboxResourcesRequest{PodSandboxId: "0123456789abcdef"})
	if !errdefs.IsNotFound(err) {
		t.Errorf("a missing sandbox: %v", err)
	}
}

// testCheckpoint checks that a checkpoint of a container that is not running is rejected without
// creating an archive.
func testCheckpoint(t *testing.T, b *bench) {
	if _, err := b.Runtime.CheckpointContainer(b.ctx, &api.CheckpointContainerRequest{
		ContainerId: "0123456789abcdef", Location: "/x",
	}); !errdefs.IsNotFound(err) {
		t.Errorf("a missing container: %v", err)
	}
	cfg := b.podConfig()
	id := b.create(b.runPod(cfg), cfg, b.containerConfig("main", "wait"))
	path := filepath.Join(b.logs, "checkpoint.tar")
	_, err := b.Runtime.CheckpointContainer(b.ctx, &api.CheckpointContainerRequest{ContainerId: id, Location: path})
	if !errdefs.IsNotImplemented(err) && !errdefs.IsFailedPrecondition(err) { // without CRIU, or not running
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an archive exists: %v", err)
	}
}
