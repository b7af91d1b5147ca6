package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/realtime"
)

// checkRealTime reports the limits of this kernel for real-time pods. It does nothing if the configuration permits no such pod.
func (p *checkup) checkRealTime(context.Context) {
	if len(p.RealTime.Pods) == 0 {
		return
	}
	used := func(policies ...string) bool {
		return slices.ContainsFunc(p.RealTime.Pods, func(r config.RealTimePods) bool {
			return slices.ContainsFunc(r.Policies, func(policy string) bool { return slices.Contains(policies, policy) })
		})
	}
	if used(config.PolicyFIFO, config.PolicyRR) {
		p.checkThrottle()
		p.checkBudgets()
	}
	if used(config.PolicyFIFO, config.PolicyRR, config.PolicyDeadline) {
		if p.readText("sys/kernel/realtime") == "1" {
			p.add("realtime-preempt", OK, "", "the kernel is built with PREEMPT_RT")
		} else {
			p.add("realtime-preempt", Info, "for latencies that are bounded and not only short, boot a kernel with PREEMPT_RT",
				"the kernel is built without PREEMPT_RT: real-time threads wait while the kernel runs code that it does not preempt")
		}
	}
	if p.RealTime.IsolatesCPUs() {
		if cpus := p.readText("sys/devices/system/cpu/isolated"); cpus == "" {
			p.add("realtime-isolated", Warning,
				"add isolcpus=LIST to the kernel's command line and reboot, or remove isolatedCPUs from realTime.pods",
				"the kernel isolates no CPUs: pods that request isolated CPUs are rejected")
		} else {
			p.add("realtime-isolated", OK, "", "the kernel isolates CPUs %s", cpus)
		}
	}
}

func (p *checkup) checkThrottle() {
	const id = "realtime-throttle"
	const restore = "set kernel.sched_rt_runtime_us to 950000, its default"
	switch throttle := realtime.ReadKernel(p.Host).Throttle; {
	case throttle == 0:
		p.add(id, Warning, restore, "kernel.sched_rt_runtime_us is 0: the kernel runs no process with FIFO, RR or DEADLINE, and pods that "+
			"request it are rejected")
	case throttle < 0 && p.RealTime.AllowUnthrottled:
		p.add(id, Warning, restore+", unless every pod that may have FIFO or RR is trusted",
			"the kernel does not throttle FIFO and RR (kernel.sched_rt_runtime_us): such a pod can take all time of a CPU from "+
				"this node's software")
	case throttle < 0:
		p.add(id, Warning, restore+", or set allowUnthrottled of realTime",
			"the kernel does not throttle FIFO and RR (kernel.sched_rt_runtime_us): pods that request them are rejected")
	default:
		p.add(id, OK, "", "the kernel throttles FIFO and RR")
	}
}

// checkBudgets checks whether FIFO and RR need a budget of their cgroup. A kernel with RT_GROUP_SCHED has no file for budgets in
// cgroup v2, so no cgroup can get one.
func (p *checkup) checkBudgets() {
	const id = "realtime-budgets"
	switch kernel := p.kernelConfig(p.readText("proc/sys/kernel/osrelease")); {
	case realtime.ReadKernel(p.Host).Budgets:
		p.add(id, Info, "use Guaranteed pods for FIFO and RR, and set realTime.bandwidth to the sum of their CPU limits",
			"the kernel has real-time budgets for cgroups (RT_GROUP_SCHED): the CPU limit of a container is its budget for FIFO and RR")
	case p.cgroupMode() == cgroupV2 && kernel["CONFIG_RT_GROUP_SCHED"] == "y" &&
		kernel["CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED"] != "y" && !strings.Contains(p.readText("proc/cmdline"), "rt_group_sched=0"):
		p.add(id, Warning,
			"boot with rt_group_sched=0 (Linux 6.16 or later), use a kernel without CONFIG_RT_GROUP_SCHED, or boot with cgroup v1",
			"the kernel has real-time budgets for cgroups (RT_GROUP_SCHED), and cgroup v2 cannot set them: containers with FIFO or "+
				"RR do not start")
	default:
		p.add(id, OK, "", "FIFO and RR need no budget of a cgroup")
	}
}
