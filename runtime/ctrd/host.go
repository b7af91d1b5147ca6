package ctrd

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/runtime/abilities"
	"github.com/islet-edge/islet/runtime/ocispec"
)

// inspectHost returns the capabilities and limits of this host that apply to containers.
func inspectHost(log *slog.Logger) (ocispec.Host, error) {
	h := ocispec.Host{MinOOMScore: -1000}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return h, err
	}
	h.Capabilities = ocispec.ParseCapabilities(string(b))
	if !slices.Contains(h.Capabilities, "CAP_SYS_RESOURCE") {
		b, err := os.ReadFile("/proc/self/oom_score_adj")
		if err != nil {
			return h, err
		}
		if h.MinOOMScore, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
			return h, fmt.Errorf("read oom_score_adj: %w", err)
		}
		log.Info("without CAP_SYS_RESOURCE an oom_score_adj cannot be lowered: a container gets at least the value of this process",
			"lowest oom_score_adj", h.MinOOMScore)
	}
	h.CgroupV2 = cgroupV2()
	h.HugePages = hasHugetlb(cgroup.Mountpoint, h.CgroupV2)
	h.Throttles, err = filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
	return h, err
}

// cgroupV2 reports whether this is a pure cgroup v2 host.
func cgroupV2() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && int64(st.Type) == unix.CGROUP2_SUPER_MAGIC
}

// hasHugetlb reports whether the cgroups below root have the hugetlb controller.
func hasHugetlb(root string, v2 bool) bool {
	if !v2 {
		// A systemd in a container creates the directory, but may not mount the hierarchy.
		_, err := os.Stat(filepath.Join(root, "hugetlb/cgroup.procs"))
		return err == nil
	}
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
}

func hostDevices() ([]specs.LinuxDevice, error) { return oci.HostDevices() }

// overlayOptions returns mount options that reduce writes to flash memory. Overlay mounts skip
// syncs, because a container does not survive a power cut.
func overlayOptions() []string {
	if abilities.Kernel(5, 10) {
		return []string{"volatile"}
	}
	return nil
}
