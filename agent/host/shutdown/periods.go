package shutdown

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/sorting"
)

// A Period is the grace period for pods whose priority is at least Priority and lower than the Priority of the next
// Period.
type Period struct {
	Priority int32
	Grace    time.Duration
}

// Periods returns the configured periods, sorted by priority. If no period is configured, the package ends no pod at a
// shutdown of the machine.
func Periods(k *kubelet.KubeletConfiguration) (all []Period) {
	for _, p := range k.ShutdownGracePeriodByPodPriority {
		all = append(all, Period{p.Priority, time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	if len(all) == 0 && total > 0 {
		all = []Period{{0, (total - critical).Truncate(time.Second)}, {demand.SystemCritical, critical.Truncate(time.Second)}}
	}
	sorting.StableBy(all, func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
	return all
}

// Total returns the sum of all periods.
func Total(periods []Period) (d time.Duration) {
	for _, p := range periods {
		d += p.Grace
	}
	return d
}

// periodIndex returns the index of a pod's period. A pod whose priority is lower than the priorities of all periods belongs to the
// first one.
func periodIndex(periods []Period, pod *v1.Pod) int {
	var priority int32
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	i := 0
	for n, p := range periods {
		if p.Priority <= priority {
			i = n
		}
	}
	return i
}
