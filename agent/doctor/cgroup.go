package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

type cgroupMode string

const (
	cgroupV1     cgroupMode = "v1"
	cgroupV2     cgroupMode = "v2"
	cgroupHybrid cgroupMode = "hybrid (v1 and v2)"
	cgroupNone   cgroupMode = "none"
)

// cgroupMode returns the version of the cgroup hierarchy that is mounted on the host.
func (p *checkup) cgroupMode() cgroupMode {
	if p.exists("sys/fs/cgroup/cgroup.controllers") {
		return cgroupV2
	}
	one, two := false, false
	for _, m := range p.table {
		one = one || m.kind == "cgroup"
		two = two || m.kind == "cgroup2"
	}
	switch {
	case one && two:
		return cgroupHybrid
	case one:
		return cgroupV1
	}
	return cgroupNone
}

func (p *checkup) listControllers(mode cgroupMode) []string {
	if mode == cgroupV2 {
		return strings.Fields(p.readText("sys/fs/cgroup/cgroup.controllers"))
	}
	var names []string
	for _, m := range p.table {
		if m.kind == "cgroup" {
			names = append(names, m.options...)
		}
	}
	return names
}

func (p *checkup) checkCgroups(context.Context) {
	mode := p.cgroupMode()
	switch {
	case mode == cgroupNone:
		p.add("cgroup", Error, "mount it: mount -t cgroup2 none /sys/fs/cgroup (systemd and most init systems do)",
			"no cgroup hierarchy is mounted")
		return
	case mode != cgroupV2 && p.FailCgroupV1:
		p.add("cgroup", Error, "boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1: false",
			"cgroup %s, and failCgroupV1 is set", mode)
	case mode != cgroupV2:
		p.add("cgroup", Info, "cgroup v2 isolates memory better: boot with systemd.unified_cgroup_hierarchy=1 when you can", "cgroup %s",
			mode)
	default:
		p.add("cgroup", OK, "", "cgroup %s", mode)
	}
	have := p.listControllers(mode)
	for _, c := range []struct {
		name     string
		severity Severity
		loss     string
	}{
		{"cpu", Error, "CPU limits and shares cannot be set"},
		{"memory", Error, "memory limits cannot be set, and one pod can take the whole machine down"},
		{"pids", Warning, "podPidsLimit cannot be set, and a fork bomb takes the whole machine down"},
		{"cpuset", Info, "containers cannot be pinned to CPUs"},
	} {
		if slices.Contains(have, c.name) {
			p.add("cgroup-"+c.name, OK, "", "the %s controller is available", c.name)
			continue
		}
		p.add("cgroup-"+c.name, c.severity, p.enableController(c.name), "the %s cgroup controller is missing: %s", c.name, c.loss)
	}
	systemd := p.exists("run/systemd/system")
	switch {
	case p.SystemdCgroup && !systemd:
		p.add("cgroup-driver", Error, "set cgroupDriver: cgroupfs", "cgroupDriver is systemd, but systemd is not running")
	case !p.SystemdCgroup && systemd && mode == cgroupV2:
		p.add("cgroup-driver", Info, "set cgroupDriver: systemd where other software on this host expects one owner of the hierarchy",
			"cgroupDriver is cgroupfs, but systemd manages cgroups too; islet's unit delegates a subtree to it")
	default:
		p.add("cgroup-driver", OK, "", "the cgroup driver suits the init system")
	}
}

// enableController returns the advice for a missing controller. The firmware of a Raspberry Pi disables the memory
// controller.
func (p *checkup) enableController(name string) string {
	if name != "memory" {
		return "use a kernel with this controller; see /proc/cgroups"
	}
	for _, file := range []string{"boot/firmware/cmdline.txt", "boot/cmdline.txt"} {
		if strings.Contains(p.readText(file), "cgroup_enable=memory") {
			return fmt.Sprintf("reboot: /%s has cgroup_enable=memory, but the running kernel was booted without it", file)
		}
		if p.exists(file) {
			return fmt.Sprintf("append cgroup_enable=memory cgroup_memory=1 to the line in /%s and reboot", file)
		}
	}
	return "add cgroup_enable=memory to the kernel's command line and reboot"
}
