package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/keys"
	"github.com/islet-edge/islet/podspec"
)

// summary answers /stats/summary: what the host and the running pods use.
func (s *Server) summary(r *http.Request) (*stats.Summary, error) {
	sum := &stats.Summary{Node: stats.NodeStats{NodeName: s.NodeName, StartTime: metav1.NewTime(s.started)}}
	if s.NodeStats != nil {
		n, err := s.NodeStats(r.Context())
		if err != nil {
			return nil, fmt.Errorf("measure the host: %w", err)
		}
		sum.Node = n
	}
	pods, err := s.podStats(r.Context())
	sum.Pods = pods
	return sum, err
}

func (s *Server) podStats(ctx context.Context) ([]stats.PodStats, error) {
	list, err := s.Runtime.ListContainerStats(ctx, &crapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("measure containers: %w", err)
	}
	byUID := map[string]int{}
	var pods []stats.PodStats
	podStarts, starts := s.startTimes()
	used := s.rates.of(list.Stats)
	for _, c := range list.Stats {
		labels := c.GetAttributes().GetLabels()
		uid := labels[keys.PodUID]
		i, ok := byUID[uid]
		if !ok {
			i = len(pods)
			byUID[uid] = i
			pods = append(pods, stats.PodStats{StartTime: podStarts[uid], PodRef: stats.PodReference{UID: uid,
				Name: labels[keys.PodName], Namespace: labels[keys.PodNamespace]}})
		}
		id := c.GetAttributes().GetId()
		st := containerStats(c, used[id])
		st.StartTime = starts[id]
		pods[i].Containers = append(pods[i].Containers, st)
	}
	for i := range pods {
		pods[i].CPU, pods[i].Memory = total(pods[i].Containers)
	}
	return pods, nil
}

// startTimes says when pods (by UID) and their running containers (by ID) started.
func (s *Server) startTimes() (pods, containers map[string]metav1.Time) {
	pods, containers = map[string]metav1.Time{}, map[string]metav1.Time{}
	for _, p := range s.Pods.List() {
		if p.Status.StartTime != nil {
			pods[string(p.UID)] = *p.Status.StartTime
		}
		for c := range podspec.Statuses(&p.Status) {
			if c.State.Running != nil {
				containers[bareID(c.ContainerID)] = c.State.Running.StartedAt
			}
		}
	}
	return pods, containers
}

func containerStats(c *crapi.ContainerStats, nanoCores *uint64) stats.ContainerStats {
	out := stats.ContainerStats{Name: c.GetAttributes().GetLabels()[keys.ContainerName]}
	if cpu := c.Cpu; cpu != nil {
		out.CPU = &stats.CPUStats{Time: metav1.NewTime(time.Unix(0, cpu.Timestamp)), UsageNanoCores: nanoCores,
			UsageCoreNanoSeconds: value(cpu.UsageCoreNanoSeconds)}
	}
	if mem := c.Memory; mem != nil {
		out.Memory = &stats.MemoryStats{Time: metav1.NewTime(time.Unix(0, mem.Timestamp)),
			WorkingSetBytes: value(mem.WorkingSetBytes), UsageBytes: value(mem.UsageBytes), RSSBytes: value(mem.RssBytes)}
	}
	return out
}

func value(v *crapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

// total adds up what containers use. What one of them lacks, the pod lacks.
func total(containers []stats.ContainerStats) (*stats.CPUStats, *stats.MemoryStats) {
	cpu, mem := &stats.CPUStats{}, &stats.MemoryStats{}
	add := func(to **uint64, v *uint64, first bool) {
		switch {
		case v == nil || !first && *to == nil:
			*to = nil
		case first:
			n := *v
			*to = &n
		default:
			**to += *v
		}
	}
	for i, c := range containers {
		if c.CPU != nil {
			cpu.Time = c.CPU.Time
			add(&cpu.UsageNanoCores, c.CPU.UsageNanoCores, i == 0)
			add(&cpu.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds, i == 0)
		}
		if c.Memory != nil {
			mem.Time = c.Memory.Time
			add(&mem.WorkingSetBytes, c.Memory.WorkingSetBytes, i == 0)
			add(&mem.UsageBytes, c.Memory.UsageBytes, i == 0)
			add(&mem.RSSBytes, c.Memory.RSSBytes, i == 0)
		}
	}
	return cpu, mem
}

// rates derives the CPU use of now from two measurements. It remembers the last
// of each container that there still is.
type rates struct {
	mu   sync.Mutex
	last map[string]sample
}

type sample struct {
	at, used  uint64 // both in nanoseconds
	nanoCores *uint64
}

// minInterval is the least time between measurements that gives a rate.
const minInterval = uint64(500 * time.Millisecond)

// of returns the nanocores of each container; nil: not known yet.
func (r *rates) of(list []*crapi.ContainerStats) map[string]*uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, out := make(map[string]sample, len(list)), make(map[string]*uint64, len(list))
	for _, c := range list {
		id, cpu := c.GetAttributes().GetId(), c.GetCpu()
		if cpu.GetUsageCoreNanoSeconds() == nil {
			continue
		}
		n := sample{at: uint64(cpu.Timestamp), used: cpu.UsageCoreNanoSeconds.Value, nanoCores: value(cpu.UsageNanoCores)}
		if last, ok := r.last[id]; ok && n.nanoCores == nil {
			switch {
			case n.at < last.at+minInterval:
				n = last
			case n.used >= last.used:
				rate := uint64(float64(n.used-last.used) / float64(n.at-last.at) * 1e9)
				n.nanoCores = &rate
			}
		}
		now[id], out[id] = n, n.nanoCores
	}
	r.last = now
	return out
}
