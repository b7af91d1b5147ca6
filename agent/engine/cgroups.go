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

// Share is what OpenCgroups needs.
type Share struct {
	Config    *config.Config
	Share     reserve.Share                              // of this machine
	Exclusive func(*v1.Pod) bool                         // a container of the pod has CPUs of its own
	Active    func() []*v1.Pod                           // that may run
	Took      func(operation string, took time.Duration) // see cgroup.Config
	Tell      func(warning bool, reason, message string) // takes events of the node
	Log       *slog.Logger
}

// OpenCgroups makes what keeps the cgroups of pods, holds those of the system to what is
// kept for them, and what runs already to what pods may have.
func (c *Containers) OpenCgroups(s Share) (*cgroup.Pods, error) {
	k := &s.Config.Kubelet
	all := cgroup.LimitsOf(s.Share.Enforced(k.EnforceNodeAllocatable), reserve.PIDs, false)
	if !s.Share.KeepsPIDs() || !slices.Contains(k.EnforceNodeAllocatable, "pods") {
		all.PIDs = 0
	}
	out, err := cgroup.New(cgroup.Config{
		Driver: c.CgroupDriver, Root: k.CgroupRoot, PodPidsLimit: *k.PodPidsLimit, CPUPeriod: s.Config.CPUPeriod,
		All: all, Others: systemCgroups(k, s.Share), Memory: memoryConfig(s), Exclusive: s.Exclusive, Took: s.Took, Tell: s.Tell, Log: s.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the cgroups of pods: %w", err)
	}
	return out, out.Start()
}

// systemCgroups are the cgroups that enforceNodeAllocatable names, in a kubelet's order.
func systemCgroups(k *kubelet.KubeletConfiguration, s reserve.Share) (out []cgroup.Held) {
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
			out = append(out, cgroup.Held{For: row.who, Cgroup: row.at, Limits: cgroup.LimitsOf(row.kept, reserve.PIDs, row.compressible)})
		}
	}
	return out
}

func memoryConfig(s Share) cgroup.Memory {
	k := &s.Config.Kubelet
	percent, _ := strconv.ParseInt(strings.TrimSuffix(k.QOSReserved["memory"], "%"), 10, 64) // validated; none: 0
	return cgroup.Memory{
		QoS: cgroup.Unified() && s.Config.Gate("MemoryQoS"), Tiered: k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy,
		Percent: percent, Active: s.Active,
	}
}
