package cgroup

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
)

// A tree is a directory with the files of a cgroup v2 hierarchy.
type tree struct {
	t      *testing.T
	dir    string
	writes int
}

func (f *tree) file(cgroup, file string) string { return filepath.Join(f.dir, cgroup, file) }

// put creates a cgroup with the given values in its files.
func (f *tree) put(cgroup, min, low, high string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Join(f.dir, cgroup), 0o755); err != nil {
		f.t.Fatal(err)
	}
	for file, value := range map[string]string{memoryMin: min, memoryLow: low, memoryHigh: high} {
		if err := os.WriteFile(f.file(cgroup, file), []byte(value+"\n"), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *tree) values(cgroup string) string {
	var out []string
	for _, file := range []string{memoryMin, memoryLow, memoryHigh} {
		b, err := os.ReadFile(f.file(cgroup, file))
		if err != nil {
			f.t.Error(err)
		}
		out = append(out, strings.TrimSpace(string(b)))
	}
	return strings.Join(out, " ")
}

// pods returns a Pods whose cgroups are in the tree.
func (f *tree) pods(driver string, k Memory) *Pods {
	f.t.Helper()
	k.Unified = true
	p, err := New(Config{Driver: driver, Memory: k, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	path := func(n cgroupName) string {
		if driver == Systemd {
			return n.slicePath()
		}
		return n.cgroupfsPath()
	}
	p.base = map[v1.PodQOSClass]map[string]string{}
	for _, c := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		p.base[c] = map[string]string{"": filepath.Join(f.dir, path(qosName(nil, c)))}
	}
	p.write = func(n cgroupName, r *cgroups.Resources) error {
		f.writes++
		for file, value := range r.Unified {
			if err := os.WriteFile(f.file(path(n), file), []byte(value+"\n"), 0); err != nil {
				return err
			}
		}
		return nil
	}
	return p
}

// TestFormerMemory checks that the agent removes the memory protection and throttling of an earlier configuration when it starts. It
// removes them from kubepods, the QoS classes and the pods. Nothing else is written.
func TestFormerMemory(t *testing.T) {
	active := func() []*v1.Pod {
		return []*v1.Pod{
			pod("g", v1.ResourceRequirements{Requests: list("cpu", "1", "memory", "3Mi"), Limits: list("cpu", "1", "memory", "3Mi")}),
			pod("b", v1.ResourceRequirements{Requests: list("memory", "5Mi")}),
		}
	}
	for name, driver := range map[string]string{"cgroupfs": Cgroupfs, "systemd": Systemd} {
		cgroup := map[string]string{
			"all": "kubepods", "guaranteed": "kubepods/poda-1", "burstable": "kubepods/burstable", "pod": "kubepods/burstable/podb-2",
			"effort": "kubepods/besteffort", "container": "kubepods/burstable/podb-2/c",
		}
		if driver == Systemd {
			b := "kubepods.slice/kubepods-burstable.slice"
			cgroup = map[string]string{
				"all": "kubepods.slice", "guaranteed": "kubepods.slice/kubepods-poda_1.slice", "burstable": b,
				"pod": b + "/kubepods-burstable-podb_2.slice", "effort": "kubepods.slice/kubepods-besteffort.slice",
				"container": b + "/kubepods-burstable-podb_2.slice/cri-containerd-c.scope",
			}
		}
		for config, tt := range map[string]struct {
			k    Memory
			want map[string]string
		}{
			"off": {Memory{Tiered: true, Throttle: 0.9}, map[string]string{
				"all": "0 0 900", "guaranteed": "0 0 max", "burstable": "0 0 max", "pod": "0 0 max"}},
			"neither": {Memory{QoS: true}, map[string]string{
				"all": "0 0 900", "guaranteed": "0 0 max", "burstable": "0 0 max", "pod": "0 0 max"}},
			"throttles": {Memory{QoS: true, Throttle: 0.9}, map[string]string{
				"all": "0 0 900", "guaranteed": "0 0 max", "burstable": "0 0 max", "pod": "0 0 600"}},
			"tiered": {Memory{QoS: true, Tiered: true, Active: active}, map[string]string{
				"all": "8388608 5242880 900", "guaranteed": "300 0 max", "burstable": "0 5242880 max", "pod": "0 500 max"}},
			"both": {Memory{QoS: true, Tiered: true, Throttle: 0.9, Active: active}, map[string]string{
				"all": "8388608 5242880 900", "guaranteed": "300 0 max", "burstable": "0 5242880 max", "pod": "0 500 600"}},
		} {
			t.Run(name+" "+config, func(t *testing.T) {
				f := &tree{t: t, dir: t.TempDir()}
				for key, values := range map[string][3]string{
					"all": {"800", "500", "900"}, "guaranteed": {"300", "0", "max"}, "burstable": {"0", "500", "max"},
					"pod": {"0", "500", "600"}, "effort": {"0", "0", "max"}, "container": {"0", "500", "600"},
				} {
					f.put(cgroup[key], values[0], values[1], values[2])
				}
				p := f.pods(driver, tt.k)
				p.resetMemory()
				p.updateClasses()
				want := maps.Clone(tt.want)
				want["effort"], want["container"] = "0 0 max", "0 500 600"
				for key, values := range want {
					if got := f.values(cgroup[key]); got != values {
						t.Errorf("%s has %s, not %s", key, got, values)
					}
				}
				f.writes = 0
				p.resetMemory()
				p.updateClasses()
				if f.writes > 0 {
					t.Errorf("%d cgroups are written again", f.writes)
				}
			})
		}
	}
}

// TestChanged checks that a value is written only if it differs from the current value. A cgroup that does not exist yet has the kernel's
// defaults.
func TestChanged(t *testing.T) {
	f := &tree{t: t, dir: t.TempDir()}
	f.put("a", "0", "4096", "max")
	for cgroup, want := range map[string]map[string]string{"a": {memoryLow: "0", memoryHigh: "8192"}, "new": {memoryHigh: "8192"}} {
		got := changedValues(filepath.Join(f.dir, cgroup), map[string]string{memoryMin: "0", memoryLow: "0", memoryHigh: "8192"})
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, not %v", cgroup, got, want)
		}
	}
	if got := changedValues(filepath.Join(f.dir, "a"), map[string]string{memoryMin: "0", memoryLow: "4096", memoryHigh: "max"}); got != nil {
		t.Errorf("equal values: %v", got)
	}
}

// TestThrottleWithLimit checks a decrease of the memory limit. The memory protection and throttling decrease together with the limit, after
// the limits of the containers.
func TestThrottleWithLimit(t *testing.T) {
	want := &cgroups.Resources{Memory: 100, Unified: map[string]string{memoryHigh: "90"}}
	if dropDecreases(want, currentBounds{memory: 200}); want.Unified != nil {
		t.Errorf("before the containers' limits: %v", want.Unified)
	}
	want = &cgroups.Resources{Memory: 300, Unified: map[string]string{memoryHigh: "290"}}
	if dropDecreases(want, currentBounds{memory: 200}); want.Unified[memoryHigh] != "290" {
		t.Errorf("with a higher limit: %v", want.Unified)
	}
}
