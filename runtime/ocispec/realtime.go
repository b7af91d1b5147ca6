package ocispec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/realtime"
)

// addRealTime sets the scheduling policy, the I/O priority and the limits in the annotations of a container. The process needs no
// capability for them.
func addRealTime(c *api.ContainerConfig, s *specs.Spec) error {
	set, err := realtime.Read(c.GetAnnotations())
	if err != nil {
		return err
	}
	p := s.Process
	p.Scheduler, p.IOPriority = scheduler(set.Scheduler), ioPriority(set.IO)
	limit := func(name string, value uint64) {
		p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: name, Soft: value, Hard: value})
	}
	if set.Scheduler.Policy != "" {
		limit("RLIMIT_RTPRIO", 0) // threads inherit the policy, and a command that is executed in the container cannot select it
	}
	if set.BusyLimit > 0 {
		limit("RLIMIT_RTTIME", uint64(set.BusyLimit.Microseconds()))
	}
	if set.LockedMemory > 0 {
		limit("RLIMIT_MEMLOCK", uint64(set.LockedMemory))
	}
	if budget := set.Budget.Microseconds(); budget > 0 {
		if s.Linux.Resources.CPU == nil {
			s.Linux.Resources.CPU = &specs.LinuxCPU{}
		}
		s.Linux.Resources.CPU.RealtimeRuntime = &budget
	}
	return nil
}

// scheduler converts a policy. The children of a process with DEADLINE start with the default policy, because otherwise the kernel
// rejects each fork of the process.
func scheduler(s realtime.Scheduler) *specs.Scheduler {
	if s.Policy == "" {
		return nil
	}
	out := &specs.Scheduler{
		Policy: specs.LinuxSchedulerPolicy("SCHED_" + s.Policy), Nice: int32(s.Nice), Priority: int32(s.Priority),
		Runtime: uint64(s.Runtime), Deadline: uint64(s.Deadline), Period: uint64(s.Period),
	}
	if s.Policy == config.PolicyDeadline {
		out.Flags = []specs.LinuxSchedulerFlag{specs.SchedFlagResetOnFork}
	}
	return out
}

func ioPriority(p realtime.IOPriority) *specs.LinuxIOPriority {
	class, ok := map[string]specs.IOPriorityClass{
		config.IORealTime: specs.IOPRIO_CLASS_RT, config.IOBestEffort: specs.IOPRIO_CLASS_BE, config.IOIdle: specs.IOPRIO_CLASS_IDLE,
	}[p.Class]
	if !ok {
		return nil
	}
	return &specs.LinuxIOPriority{Class: class, Priority: p.Level}
}
