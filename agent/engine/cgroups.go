package engine

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/reserve"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// Share is the input of OpenCgroups.
type Share struct {
	Config          *config.Config
	Share           reserve.Share                              // capacity, reservations and allocatable of the node
	Exclusive       func(*v1.Pod) bool                         // whether a container of the pod has exclusive CPUs
	RealTime        func(*v1.Pod) (own, all time.Duration)     // returns budgets for FIFO and RR: see cgroup.Config
	Active          func() []*v1.Pod                           // the admitted pods that have not ended
	ObserveDuration func(operation string, took time.Duration) // observes durations: see cgroup.Config
	Protected       func(min, low int64)                       // observes protected bytes: see cgroup.Memory
	RecordEvent     func(warning bool, reason, message string) // records an event of the Node
	Log             *slog.Logger
}

// OpenCgroups creates the cgroup hierarchy of pods. It limits all pods together, including those that are running, to
// the node's allocatable. It limits the cgroups of the system to their reservations.
func (c *Containers) OpenCgroups(s Share) (*cgroup.Pods, error) {
	k := &s.Config.Kubelet
	all := cgroup.LimitsOf(s.Share.EnforcedLimits(k.EnforceNodeAllocatable), reserve.PIDs, false)
	if !s.Share.KeepsPIDs() || !slices.Contains(k.EnforceNodeAllocatable, "pods") {
		all.PIDs = 0
	}
	out, err := cgroup.New(cgroup.Config{
		Driver: c.CgroupDriver, Root: k.CgroupRoot, PodPidsLimit: *k.PodPidsLimit, CPUPeriod: s.Config.CPUPeriod,
		Kubepods: all, System: systemCgroups(k,
			s.Share), Memory: memoryConfig(s), Exclusive: s.Exclusive, RealTime: s.RealTime,
		Observe: s.ObserveDuration, RecordEvent: s.RecordEvent, Log: s.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the cgroups of pods: %w", err)
	}
	return out, out.Start()
}

// systemCgroups returns the cgroups in the list enforceNodeAllocatable, except pods. They are in the order in which a
// kubelet sets their limits.
func systemCgroups(k *kubelet.KubeletConfiguration, s reserve.Share) (out []cgroup.EnforcedCgroup) {
	for _, row := range []struct {
		key, who, at string
		kept         v1.ResourceList
		compressible bool
	}{
		{"system-reserved", "System Reserved", k.SystemReservedCgroup, s.System, false},
		{"kube-reserved", "Kube Reserved", k.KubeReservedCgroup, s.Kube, false},
		{"system-reserved-compressible", "System Reserved Compressible", k.SystemReservedCgroup, s.System, true},
		{"kube-reserved-compressible", "Kube Reserved Compressible", k.KubeReservedCgroup, s.Kube, true},
	} {
		if slices.Contains(k.EnforceNodeAllocatable, row.key) {
			out = append(out, cgroup.EnforcedCgroup{
				For: row.who, Cgroup: row.at,
				Limits: cgroup.LimitsOf(row.kept, reserve.PIDs, row.compressible),
			})
		}
	}
	return out
}

func memoryConfig(s Share) cgroup.Memory {
	k := &s.Config.Kubelet
	// The text has been validated. If it is empty, percent is 0.
	percent, _ := strconv.ParseInt(strings.TrimSuffix(k.QOSReserved["memory"], "%"), 10, 64)
	out := cgroup.Memory{
		Unified: cgroup.IsUnified(), QoS: cgroup.IsUnified() && s.Config.GateEnabled("MemoryQoS"),
		Tiered:  k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy,
		Percent: percent, Active: s.Active, Protected: s.Protected,
	}
	if f := k.MemoryThrottlingFactor; f != nil {
		out.Throttle = *f
	}
	return out
}
