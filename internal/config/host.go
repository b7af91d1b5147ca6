package config

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// KernelSettings are the kernel parameters, as paths below /proc/sys, that a
// kubelet expects; protectKernelDefaults makes a difference an error.
func KernelSettings() map[string]int {
	return map[string]int{
		"vm/overcommit_memory":      1,
		"vm/panic_on_oom":           0,
		"kernel/panic":              10,
		"kernel/panic_on_oops":      1,
		"kernel/keys/root_maxkeys":  1000000,
		"kernel/keys/root_maxbytes": 25000000,
	}
}

// KillsWholeContainers says whether the kernel is to kill a whole container when
// it runs out of memory, and not one of its processes: as singleProcessOOMKill
// says, where host (its root directory) has cgroup v2 with its memory controller.
func (c *Config) KillsWholeContainers(host fs.FS) bool {
	controllers, err := fs.ReadFile(host, "sys/fs/cgroup/cgroup.controllers")
	single := c.Kubelet.SingleProcessOOMKill
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "memory") && (single == nil || !*single)
}

// SwapCgroup is the version of cgroups by which containers can be kept from swap
// on host (its root directory), or 0 where the kernel does not count swap.
func SwapCgroup(host fs.FS) int {
	if _, err := fs.Stat(host, "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"); err == nil {
		return 1
	}
	own, err := fs.ReadFile(host, "proc/self/cgroup") // the root of the hierarchy has no limits
	path, v2 := strings.CutPrefix(strings.TrimSpace(string(own)), "0::")
	if err != nil || !v2 {
		return 0
	}
	if _, err := fs.Stat(host, filepath.Join("sys/fs/cgroup", path, "memory.swap.max")); err != nil {
		return 0
	}
	return 2
}

// swapDevice names the first device or file that the host swaps to; "": none.
func swapDevice(host fs.FS) string {
	swaps, err := fs.ReadFile(host, "proc/swaps")
	lines := strings.Split(strings.TrimSpace(string(swaps)), "\n")
	if err != nil || len(lines) < 2 {
		return ""
	}
	if fields := strings.Fields(lines[1]); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// Concerns are what of the host (its root directory) a person should know, and no
// reason not to start.
func (c *Config) Concerns(host fs.FS) (out []string) {
	if device := swapDevice(host); device != "" && c.SwapUnasked {
		out = append(out, fmt.Sprintf("swap is on (%s): containers are kept from it where the kernel can, the rest of the system may become slow and wear the card; "+
			"turn it off with swapoff -a, or set failSwapOn: false to accept it, or true to refuse it", device))
	}
	if _, err := fs.Stat(host, unifiedControllers); err != nil && gateOn(c.Kubelet.FeatureGates, gateMemoryQoS) {
		out = append(out, "the feature MemoryQoS does nothing on cgroup v1: boot with systemd.unified_cgroup_hierarchy=1")
	}
	if drivers := flexDrivers(host, c.Kubelet.VolumePluginDir); len(drivers) > 0 {
		out = append(out, fmt.Sprintf("volumePluginDir %s has FlexVolume drivers (%s), which islet does not run: a pod that needs one of them does not start; "+
			"use a CSI driver", c.Kubelet.VolumePluginDir, strings.Join(drivers, ", ")))
	}
	return out
}

// flexDrivers are the first FlexVolume drivers in a directory, as vendor/driver.
func flexDrivers(host fs.FS, dir string) (out []string) {
	const most = 5
	entries, err := fs.ReadDir(host, strings.Trim(filepath.Clean(dir), "/"))
	if err != nil {
		return nil // there is none
	}
	for _, e := range entries {
		vendor, driver, _ := strings.Cut(e.Name(), "~")
		if driver == "" {
			vendor, driver = "", e.Name()
		}
		path := strings.Trim(filepath.Join(dir, e.Name(), driver), "/")
		if info, err := fs.Stat(host, path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && len(out) < most {
			out = append(out, strings.TrimPrefix(fmt.Sprintf("%s/%.63s", vendor, driver), "/"))
		}
	}
	return out
}

// Gate reports whether a feature gate of a kubelet is on; those that neither it nor its
// defaults here name are.
func (c *Config) Gate(name string) bool { return gateOn(c.Kubelet.FeatureGates, name) }

// unifiedControllers is there on cgroup v2 only.
const unifiedControllers = "sys/fs/cgroup/cgroup.controllers"

// CheckHost says what of the host (its root directory) keeps an agent with this
// configuration from starting: swap with failSwapOn, cgroup v1 with
// failCgroupV1, kernel parameters with protectKernelDefaults. What cannot be
// read is taken as fine.
func (c *Config) CheckHost(host fs.FS) []error {
	var errs []error
	add := func(path string, value any, detail string) {
		errs = append(errs, field.Invalid(field.NewPath(path), value, detail))
	}
	if device := swapDevice(host); device != "" && *c.Kubelet.FailSwapOn {
		add("failSwapOn", true, fmt.Sprintf("swap is on (%s): turn it off with swapoff -a, or set failSwapOn: false", device))
	}
	_, err := fs.Stat(host, "sys/fs/cgroup/cgroup.controllers")
	v1 := err != nil
	if v1 && c.Kubelet.MemorySwap.SwapBehavior == "LimitedSwap" {
		add("memorySwap.swapBehavior", "LimitedSwap", "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2")
	}
	if v1 && *c.Kubelet.FailCgroupV1 {
		add("failCgroupV1", true, "this host has cgroup v1: boot it with systemd.unified_cgroup_hierarchy=1, or leave failCgroupV1 out")
	}
	if single := c.Kubelet.SingleProcessOOMKill; v1 && single != nil && !*single {
		add("singleProcessOOMKill", false, "cgroup v1 kills single processes only")
	}
	if !c.Kubelet.ProtectKernelDefaults {
		return errs
	}
	settings := KernelSettings()
	for _, path := range slices.Sorted(maps.Keys(settings)) {
		want := settings[path]
		data, err := fs.ReadFile(host, "proc/sys/"+path)
		if have, perr := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && perr == nil && have != want {
			name := strings.ReplaceAll(path, "/", ".")
			add("protectKernelDefaults", true, fmt.Sprintf("%s is %d: set it with sysctl -w %s=%d", name, have, name, want))
		}
	}
	return errs
}
