package cgroup

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

func TestKeepMore(t *testing.T) {
	v2 := cgroups.IsCgroup2UnifiedMode()
	for name, tt := range map[string]struct {
		want   cgroups.Resources
		now    currentBounds
		memory int64
		quota  int64
		shares uint64
	}{
		"more":         {cgroups.Resources{Memory: 2, CpuQuota: 20000, CpuPeriod: 100000, CpuShares: 2048}, currentBounds{memory: 1, quota: 10000, period: 100000, shares: 20}, 2, 20000, 2048},
		"less":         {cgroups.Resources{Memory: 1, CpuQuota: 10000, CpuPeriod: 100000, CpuShares: 2}, currentBounds{memory: 2, quota: 20000, period: 100000, shares: 2000}, 0, 0, 0},
		"first limits": {cgroups.Resources{Memory: 1, CpuQuota: 10000, CpuPeriod: 100000}, currentBounds{}, 0, 0, 0},
		"other period": {cgroups.Resources{CpuQuota: 10000, CpuPeriod: 20000}, currentBounds{quota: 20000, period: 100000}, 0, 10000, 0},
	} {
		if dropDecreases(&tt.want, tt.now); tt.want.Memory != tt.memory || tt.want.CpuQuota != tt.quota || tt.want.CpuShares != tt.shares && !v2 {
			t.Errorf("%s: %+v", name, tt.want)
		}
	}
	// A limit of zero huge pages is not set, because a running pod may use such pages without a request.
	pages := cgroups.Resources{HugetlbLimit: []*cgroups.HugepageLimit{{Pagesize: "1GB"}, {Pagesize: "2MB", Limit: 2 << 20}}}
	if dropDecreases(&pages, currentBounds{}); len(pages.HugetlbLimit) != 1 || pages.HugetlbLimit[0].Pagesize != "2MB" {
		t.Errorf("huge pages: %+v", pages.HugetlbLimit)
	}
}

// TestResize checks that Grow only raises limits, and that Shrink sets all limits. Grow rejects a memory limit below the usage. After a
// restart of the agent, Prepare does not lower limits.
func TestResize(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := "islet-test-resize-" + strconv.Itoa(os.Getpid())
	open := func() *Pods {
		p, err := New(Config{Driver: Cgroupfs, Root: "/" + root, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := open()
	t.Cleanup(func() {
		for _, d := range dirs(root) {
			removeTree(d)
		}
	})
	sized := func(request, cpu, memory string) *v1.Pod {
		return pod("r1", v1.ResourceRequirements{Requests: list("cpu", request), Limits: list("cpu", cpu, "memory", memory)})
	}
	first := sized("100m", "200m", "64Mi")
	m := func() cgroups.Manager {
		n := podName(p.root, demand.Class(first), first.UID)
		m, err := manager.NewWithPaths(n.cgroupConfig(false, &cgroups.Resources{SkipDevices: true}), p.limitedDirs(demand.Class(first), n, []string{"cpu", "memory", "pids"}))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	expect := func(memory int64, milli, shares int64) {
		t.Helper()
		now, err := readBounds(m())
		if err != nil || now.memory != memory<<20 || now.quota != milli*100 || now.shares != int64(kernelShares(uint64(shares))) {
			t.Errorf("limits %+v, want %d Mi, %d, %d: %v", now, memory, milli, shares, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.Grow(t.Context(), first)) // the cgroup does not exist yet
	must(p.Prepare(t.Context(), sized("50m", "100m", "48Mi")))
	expect(48, 100, 51)
	must(p.Prepare(t.Context(), first)) // the pod is resized before its start
	expect(64, 200, 102)
	mixed := sized("200m", "100m", "96Mi")
	must(p.Grow(t.Context(), mixed))
	expect(96, 200, 204)
	for range 2 {
		must(p.Shrink(t.Context(), mixed))
		expect(96, 100, 204)
	}

	cmd := exec.Command("sleep", "infinity")
	must(cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for _, dir := range m().GetPaths() {
		must(os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
	low := sized("40m", "50m", "4Ki")
	if now, err := readBounds(m()); err == nil && now.usage >= 4<<10 {
		if err := p.Grow(t.Context(), low); err == nil ||
			!strings.HasPrefix(err.Error(), "cannot decrease memory limits: attempting to set pod memory limit (4096) below current usage (") {
			t.Errorf("got %v", err)
		}
		expect(96, 100, 204)
	}
	p = open() // the agent restarts between Grow and Shrink
	less := sized("40m", "50m", "32Mi")
	must(p.Prepare(t.Context(), less))
	expect(96, 100, 204)
	must(p.Shrink(t.Context(), less))
	expect(32, 50, 40)
	must(p.Release(t.Context(), first.UID))
}

// TestNoResizeIsOverlooked checks that Prepare does not overlook a resize: if two pods give their cgroup, or the cgroups of the QoS
// classes, other values, their wantedBounds differ.
func TestNoResizeIsOverlooked(t *testing.T) {
	var pods []*v1.Pod
	for _, whole := range []string{"", "64Mi", "96Mi"} {
		for _, request := range []string{"0", "16Mi", "32Mi"} {
			for _, limit := range []string{"0", "32Mi", "64Mi"} {
				p := pod("a", v1.ResourceRequirements{Requests: list("cpu", "100m", "memory", request), Limits: list("memory", limit)})
				if whole != "" {
					p.Spec.Resources = &v1.ResourceRequirements{Requests: list("memory", request), Limits: list("memory", whole)}
				}
				pods = append(pods, p)
			}
		}
	}
	var active []*v1.Pod
	p := &Pods{c: Config{Memory: Memory{Unified: true, QoS: true, Tiered: true, Throttle: 0.9, Percent: 50,
		Active: func() []*v1.Pod { return active }}}}
	values := func(pod *v1.Pod) string {
		active = []*v1.Pod{pod}
		text := fmt.Sprint(*podLimits(pod, 0, 0), p.c.Memory.forPod(pod))
		classes := p.c.Memory.classLimits(1 << 30)
		for _, c := range slices.Sorted(maps.Keys(classes)) {
			text += fmt.Sprint(c, classes[c].Memory, classes[c].Unified)
		}
		return text
	}
	for _, a := range pods {
		for _, b := range pods {
			if values(a) != values(b) && p.boundsOf(a) == p.boundsOf(b) {
				t.Errorf("overlooked: %s became %s", values(a), values(b))
			}
		}
	}
}
