package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// KernelSettings returns the kernel parameters that a kubelet sets when it starts, as paths below /proc/sys.
// With protectKernelDefaults, a different value is an error instead.
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

// KillsWholeContainers reports whether the kernel kills all processes of a container that exceeds its memory limit, and not only one of
// them. This behavior requires cgroup v2 with the memory controller. The field singleProcessOOMKill of the configuration disables it.
// The caller passes the host's root directory.
func (c *Config) KillsWholeContainers(host fs.FS) bool {
	controllers, err := fs.ReadFile(host, "sys/fs/cgroup/cgroup.controllers")
	single := c.Kubelet.SingleProcessOOMKill
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "memory") && (single == nil || !*single)
}

// SwapCgroup returns the cgroup version (1 or 2) whose memory controller can limit the swap of containers, or 0 if the kernel does not
// account swap. The caller passes the host's root directory.
func SwapCgroup(host fs.FS) int {
	if _, err := fs.Stat(host, "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"); err == nil {
		return 1
	}
	own, err := fs.ReadFile(host, "proc/self/cgroup") // the root cgroup has no limit files
	path, v2 := strings.CutPrefix(strings.TrimSpace(string(own)), "0::")
	if err != nil || !v2 {
		return 0
	}
	if _, err := fs.Stat(host, filepath.Join("sys/fs/cgroup", path, "memory.swap.max")); err != nil {
		return 0
	}
	return 2
}

// swapDevice returns the first swap device or file of the host, or "".
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

// HostWarnings returns warnings about the host that do not prevent the start. The caller passes the host's root directory.
func (c *Config) HostWarnings(host fs.FS) (out []string) {
	if device := swapDevice(host); device != "" && c.SwapUnasked {
		out = append(out,
			fmt.Sprintf("swap is on (%s): containers do not use it if the kernel supports that limit, but the rest of the system "+
				"may become slow and wear out the flash card; turn it off with swapoff -a, "+
				"or set failSwapOn: false to accept it, or true to refuse it", device))
	}
	if _, err := fs.Stat(host, unifiedControllers); err != nil && c.Kubelet.FeatureGates[gateMemoryQoS] {
		out = append(out, "the feature MemoryQoS has no effect on cgroup v1: boot with systemd.unified_cgroup_hierarchy=1")
	}
	if _, err := fs.Stat(host, unifiedControllers); err == nil && c.Kubelet.MemoryThrottlingFactor != nil && c.GateEnabled(gateMemoryQoS) {
		if release := oldThrottling(host); release != "" {
			out = append(out,
				"memoryThrottlingFactor is set, but processes that are throttled may hang on a kernel before 5.9: this is "+release)
		}
	}
	if drivers := flexDrivers(host, c.Kubelet.VolumePluginDir); len(drivers) > 0 {
		out = append(out,
			fmt.Sprintf("volumePluginDir %s has FlexVolume drivers (%s), which islet does not support: pods that need one do not start; "+
				"use a CSI driver", c.Kubelet.VolumePluginDir, strings.Join(drivers, ", ")))
	}
	return out
}

// noteVersion notes an EdgeConfiguration with an earlier version.
func (o *ownFiles) noteVersion(name, version string) {
	if version == earlierEdgeAPIVersion {
		o.earlier = append(o.earlier, name)
	}
}

// VersionWarnings returns a warning for each EdgeConfiguration in use whose version will not be read for ever.
func (c *Config) VersionWarnings() (out []string) {
	if c.files == nil {
		return nil
	}
	for _, name := range c.files.earlier {
		out = append(out, fmt.Sprintf("%s: apiVersion %s is read at least until islet 0.5; write %s, whose fields are the same", name,
			earlierEdgeAPIVersion, EdgeAPIVersion))
	}
	return out
}

// oldThrottling returns the release of the host's kernel if it is older than 5.9. Such a kernel may reclaim memory of a
// throttled process without end. https://github.com/torvalds/linux/commit/b3ff92916af3156df27716bb080a407e4caf9085
func oldThrottling(host fs.FS) string {
	var major, minor int
	text, err := fs.ReadFile(host, "proc/sys/kernel/osrelease")
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d.%d", &major, &minor)
	}
	if err != nil || major > 5 || major == 5 && minor >= 9 {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// flexDrivers returns the first five FlexVolume drivers in a directory, as vendor/driver.
func flexDrivers(host fs.FS, dir string) (out []string) {
	const most = 5
	entries, err := fs.ReadDir(host, strings.Trim(filepath.Clean(dir), "/"))
	if err != nil {
		return nil // no directory
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

// GateEnabled reports whether a feature gate that has an effect in islet is on.
func (c *Config) GateEnabled(name string) bool { return gateOn(c.Kubelet.FeatureGates, name) }

// unifiedControllers is a file that exists only on cgroup v2.
const unifiedControllers = "sys/fs/cgroup/cgroup.controllers"

// anyName is a flag before the other flags. With it, a command line is valid on a host without a valid name.
const anyName = "--hostname-override=node"

// CheckStart returns why an agent with the given command line cannot start on a host, whose root directory is host. The parameter dir
// replaces DefaultDir. The parameter planned has the contents of files that are not in place yet. A file whose content is nil is not read
// and counts as missing. A host name that is not valid is not a reason, because it may come from the network later.
func CheckStart(args []string, dir string, planned map[string][]byte, host fs.FS) error {
	c, _, err := load(append([]string{anyName}, args...), nil, dir, planned)
	if err == nil {
		err = errors.Join(c.CheckHost(host)...)
	}
	return err
}

// CheckHost returns the reasons why an agent with this configuration cannot start on a host. Examples are swap with failSwapOn, cgroup v1
// with failCgroupV1, and kernel parameters that differ from a kubelet's with protectKernelDefaults. Files that cannot be read are ignored.
// The caller passes the host's root directory.
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
		add("failCgroupV1", true, "this host uses cgroup v1: boot it with systemd.unified_cgroup_hierarchy=1, or leave failCgroupV1 out")
	}
	single := c.Kubelet.SingleProcessOOMKill
	if v1 && single != nil && !*single {
		add("singleProcessOOMKill", false, "cgroup v1 can kill single processes only")
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
