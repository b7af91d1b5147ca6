package shutdown

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/demand"
)

// A Period is how long pods have to end whose priority is at least so high, and lower than
// that of the next one.
type Period struct {
	Priority int32
	Grace    time.Duration
}

// Periods are those of a configuration, by priority; none: pods do not end with the machine.
func Periods(k *kubelet.KubeletConfiguration) (all []Period) {
	for _, p := range k.ShutdownGracePeriodByPodPriority {
		all = append(all, Period{p.Priority, time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	if len(all) == 0 && total > 0 {
		all = []Period{{0, (total - critical).Truncate(time.Second)}, {demand.SystemCritical, critical.Truncate(time.Second)}}
	}
	slices.SortStableFunc(all, func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
	return all
}

// Total is how long all may take together.
func Total(periods []Period) (d time.Duration) {
	for _, p := range periods {
		d += p.Grace
	}
	return d
}

// group is the period of a pod: a priority below the lowest belongs to that.
func group(periods []Period, pod *v1.Pod) int {
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
