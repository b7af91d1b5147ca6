package exposition

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ServeResource answers /metrics/resource, which metrics-server reads: with err, only that
// there was one.
// https://kubernetes.io/docs/reference/instrumentation/node-metrics/
func ServeResource(w http.ResponseWriter, r *http.Request, sum *stats.Summary, err error) {
	if expfmt.Negotiate(r.Header).FormatType() != expfmt.TypeTextPlain {
		Serve(w, r, Resource(sum, err))
		return
	}
	respond(w, r, func(p *page) {
		var last *resourceFamily
		seen := newSeen()
		eachResource(sum, err, func(f *resourceFamily, at time.Time, v float64, labels ...string) {
			if f != last {
				p.end()
				p.begin(f.name, f.help, f.kind)
				last = f
				seen.forget()
			}
			p.stamp = stamped(at)
			p.once(seen, v, labels...)
		})
		p.end()
	})
}

// Resource gives the figures of ServeResource.
func Resource(sum *stats.Summary, err error) (out []Sample) {
	eachResource(sum, err, func(f *resourceFamily, at time.Time, v float64, labels ...string) {
		out = append(out, Sample{Name: f.name, Help: f.help, Kind: f.kind, Labels: slices.Clone(labels), Value: v, At: at})
	})
	return out
}

// A resourceFamily is one figure: what f gives of the node, of a pod or of a container, each
// of which may have none. One without any is of whether there was an error.
type resourceFamily struct {
	name, help string
	kind       Kind
	of         func(*figures) (at time.Time, v float64, ok bool)
	node       bool
	pod        bool
	container  bool
}

// figures are those of one of the three.
type figures struct {
	cpu     *stats.CPUStats
	memory  *stats.MemoryStats
	swap    *stats.SwapStats
	started time.Time
}

const (
	helpCPU    = "CPU time used, in seconds of one core"
	helpMemory = "memory that cannot be dropped"
	helpSwap   = "swap in use"
	helpFailed = "1 if the figures could not be measured"
)

// resourceFamilies are in the order of their names, in which a page has them.
var resourceFamilies = []resourceFamily{
	{name: "container_cpu_usage_seconds_total", help: helpCPU, kind: Counter, of: cpuSeconds, container: true},
	{name: "container_memory_working_set_bytes", help: helpMemory, of: workingSet, container: true},
	{name: "container_start_time_seconds", help: "when the container started, since 1970", of: startTime, container: true},
	{name: "container_swap_limit_bytes", help: "swap that may be used", of: swapLimit, container: true},
	{name: "container_swap_usage_bytes", help: helpSwap, of: swapUsed, container: true},
	{name: "node_cpu_usage_seconds_total", help: helpCPU, kind: Counter, of: cpuSeconds, node: true},
	{name: "node_memory_working_set_bytes", help: helpMemory, of: workingSet, node: true},
	{name: "node_swap_usage_bytes", help: helpSwap, of: swapUsed, node: true},
	{name: "pod_cpu_usage_seconds_total", help: helpCPU, kind: Counter, of: cpuSeconds, pod: true},
	{name: "pod_memory_working_set_bytes", help: helpMemory, of: workingSet, pod: true},
	{name: "pod_swap_usage_bytes", help: helpSwap, of: swapUsed, pod: true},
	{name: "resource_scrape_error", help: helpFailed},
	{name: "scrape_error", help: helpFailed},
}

// eachResource calls f with each figure, those of one family together. f does not keep labels.
func eachResource(sum *stats.Summary, err error, f func(of *resourceFamily, at time.Time, v float64, labels ...string)) {
	for i := range resourceFamilies {
		r := &resourceFamilies[i]
		switch {
		case r.of == nil && err != nil:
			f(r, time.Time{}, 1)
		case r.of == nil:
			f(r, time.Time{}, 0)
		case err != nil:
		case r.node:
			if at, v, ok := r.of(&figures{cpu: sum.Node.CPU, memory: sum.Node.Memory, swap: sum.Node.Swap}); ok {
				f(r, at, v)
			}
		default:
			r.pods(sum.Pods, f)
		}
	}
}

func (r *resourceFamily) pods(pods []stats.PodStats, f func(of *resourceFamily, at time.Time, v float64, labels ...string)) {
	var one figures
	var labels [6]string // f keeps neither
	for i := range pods {
		p := &pods[i]
		if r.pod {
			one = figures{cpu: p.CPU, memory: p.Memory, swap: p.Swap}
			if at, v, ok := r.of(&one); ok {
				f(r, at, v, append(labels[:0], "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)...)
			}
			continue
		}
		for k := range p.Containers {
			c := &p.Containers[k]
			one = figures{c.CPU, c.Memory, c.Swap, c.StartTime.Time}
			if at, v, ok := r.of(&one); ok {
				f(r, at, v, append(labels[:0], "container", c.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)...)
			}
		}
	}
}

func cpuSeconds(f *figures) (at time.Time, v float64, ok bool) {
	if f.cpu == nil || f.cpu.UsageCoreNanoSeconds == nil {
		return at, 0, false
	}
	return f.cpu.Time.Time, float64(*f.cpu.UsageCoreNanoSeconds) / float64(time.Second), true
}

func workingSet(f *figures) (at time.Time, v float64, ok bool) {
	if f.memory == nil || f.memory.WorkingSetBytes == nil {
		return at, 0, false
	}
	return f.memory.Time.Time, float64(*f.memory.WorkingSetBytes), true
}

func swapUsed(f *figures) (at time.Time, v float64, ok bool) {
	if f.swap == nil || f.swap.SwapUsageBytes == nil {
		return at, 0, false
	}
	return f.swap.Time.Time, float64(*f.swap.SwapUsageBytes), true
}

func swapLimit(f *figures) (at time.Time, v float64, ok bool) {
	if f.swap == nil || f.swap.SwapAvailableBytes == nil {
		return at, 0, false
	}
	limit := *f.swap.SwapAvailableBytes
	if f.swap.SwapUsageBytes != nil {
		limit += *f.swap.SwapUsageBytes
	}
	return f.swap.Time.Time, float64(limit), true
}

// startTime has no time of its own: it does not change.
func startTime(f *figures) (at time.Time, v float64, ok bool) {
	return at, float64(f.started.UnixNano()) / float64(time.Second), f.started.Unix() > 0
}
