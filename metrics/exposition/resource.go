package exposition

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ServeResource serves /metrics/resource, which metrics-server reads. If the measurement has failed, it serves only the metrics that report
// an error. See https://kubernetes.io/docs/reference/instrumentation/node-metrics/.
func ServeResource(w http.ResponseWriter, r *http.Request, of *Summary, err error) {
	u := userTables.get()
	defer userTables.put(u)
	defer u.removeUsers()
	u.read(of, err)
	if expfmt.Negotiate(r.Header).FormatType() != expfmt.TypeTextPlain {
		Serve(w, r, u.toSamples(err))
		return
	}
	sendPage(w, r, func(p *page) {
		var last *resourceFamily
		seen := newLabelSet()
		u.visitValues(err, func(f *resourceFamily, v *userValue, labels ...string) {
			if f != last {
				p.endFamily()
				p.beginFamily(f.name, f.help, f.kind)
				last = f
				seen.clearHashes()
			}
			p.stamp = p.cachedTimestamp(v.at)
			p.writeOnce(seen, v.number, labels...)
		})
		p.endFamily()
	})
}

// toSamples returns all values as Samples.
func (u *userTable) toSamples(err error) (out []Sample) {
	u.visitValues(err, func(f *resourceFamily, v *userValue, labels ...string) {
		out = append(out, Sample{Name: f.name, Help: f.help, Kind: f.kind, Labels: slices.Clone(labels), Value: v.number, At: v.at})
	})
	return out
}

// A resourceUser is a node, a pod or a container, with its labels and the values of all its resource metrics.
type resourceUser struct {
	namespace, pod, container string
	values                    [maxFamilies]userValue
}

// A userValue is the value of a metric for one user, with the time of the measurement. The time is zero if the value cannot change.
type userValue struct {
	at     time.Time
	number float64
	known  bool
}

// maxFamilies is the maximum number of metric families for a kind of user.
const maxFamilies = 5

// A userTable contains the values of the node, the pods and the containers, in the order of measurement. It is needed because the page
// lists all values of one metric before the next metric, but the pods of a Summary can be iterated only once.
type userTable struct {
	node             resourceUser
	pods, containers []resourceUser
}

// userTables keeps the memory of the last userTable for reuse.
var userTables spareObject[userTable]

// removeUsers empties the table. The memory of the table is reused.
func (u *userTable) removeUsers() {
	clear(u.pods)
	clear(u.containers)
	u.node, u.pods, u.containers = resourceUser{}, u.pods[:0], u.containers[:0]
}

func (u *userTable) read(of *Summary, err error) {
	if err != nil {
		return
	}
	u.node.setValues(ofNode, &userFigures{cpu: of.Node.CPU, memory: of.Node.Memory, swap: of.Node.Swap})
	for p := range of.Pods {
		u.pods = append(u.pods, resourceUser{namespace: p.PodRef.Namespace, pod: p.PodRef.Name})
		u.pods[len(u.pods)-1].setValues(ofPod, &userFigures{cpu: p.CPU, memory: p.Memory, swap: p.Swap})
		for i := range p.Containers {
			c := &p.Containers[i]
			u.containers = append(u.containers, resourceUser{namespace: p.PodRef.Namespace, pod: p.PodRef.Name, container: c.Name})
			u.containers[len(u.containers)-1].setValues(ofContainer, &userFigures{c.CPU, c.Memory, c.Swap, c.StartTime.Time})
		}
	}
}

// setValues sets the values of all metric families for a user of the given kind, in the order of the families.
func (u *resourceUser) setValues(kind userKind, f *userFigures) {
	i := 0
	for k := range resourceFamilies {
		if r := &resourceFamilies[k]; r.user == kind {
			v := &u.values[i]
			v.at, v.number, v.known = r.readValue(f)
			i++
		}
	}
}

// visitValues calls the caller's function for each value, grouped by metric family. The function must not keep a reference to the labels.
func (u *userTable) visitValues(err error, f func(of *resourceFamily, v *userValue, labels ...string)) {
	var labels [6]string
	var nth [ofError]int // index of the next family for each kind of user
	failed := userValue{}
	if err != nil {
		failed.number = 1
	}
	for i := range resourceFamilies {
		r := &resourceFamilies[i]
		if r.user == ofError {
			f(r, &failed)
			continue
		}
		at := nth[r.user]
		nth[r.user]++
		switch r.user {
		case ofNode:
			if v := &u.node.values[at]; v.known {
				f(r, v)
			}
		case ofPod:
			for i := range u.pods {
				if p := &u.pods[i]; p.values[at].known {
					f(r, &p.values[at], append(labels[:0], "namespace", p.namespace, "pod", p.pod)...)
				}
			}
		case ofContainer:
			for i := range u.containers {
				if c := &u.containers[i]; c.values[at].known {
					f(r, &c.values[at], append(labels[:0], "container", c.container, "namespace", c.namespace, "pod", c.pod)...)
				}
			}
		}
	}
}

// A resourceFamily describes a metric of one kind of user.
type resourceFamily struct {
	name, help string
	kind       Kind
	readValue  func(*userFigures) (at time.Time, v float64, ok bool)
	user       userKind
}

// A userKind is the kind of user to which a metric belongs: the node, pods or containers. Metrics of the kind ofError report an error and
// belong to no user.
type userKind int

const (
	ofNode userKind = iota
	ofPod
	ofContainer
	ofError
)

// userFigures contains the measurements of one user.
type userFigures struct {
	cpu     *stats.CPUStats
	memory  *stats.MemoryStats
	swap    *stats.SwapStats
	started time.Time
}

const (
	helpCPU    = "CPU time used, in seconds of one core"
	helpMemory = "working set: memory in use without inactive page cache"
	helpSwap   = "swap in use"
	helpFailed = "1 if the figures could not be measured"
)

// resourceFamilies contains the metrics of the page, sorted by name.
var resourceFamilies = []resourceFamily{
	{name: "container_cpu_usage_seconds_total", help: helpCPU, kind: Counter, readValue: cpuSeconds, user: ofContainer},
	{name: "container_memory_working_set_bytes", help: helpMemory, readValue: workingSet, user: ofContainer},
	{name: "container_start_time_seconds", help: "when the container started, since 1970", readValue: startTime, user: ofContainer},
	{name: "container_swap_limit_bytes", help: "limit of swap", readValue: swapLimit, user: ofContainer},
	{name: "container_swap_usage_bytes", help: helpSwap, readValue: swapUsed, user: ofContainer},
	{name: "node_cpu_usage_seconds_total", help: helpCPU, kind: Counter, readValue: cpuSeconds, user: ofNode},
	{name: "node_memory_working_set_bytes", help: helpMemory, readValue: workingSet, user: ofNode},
	{name: "node_swap_usage_bytes", help: helpSwap, readValue: swapUsed, user: ofNode},
	{name: "pod_cpu_usage_seconds_total", help: helpCPU, kind: Counter, readValue: cpuSeconds, user: ofPod},
	{name: "pod_memory_working_set_bytes", help: helpMemory, readValue: workingSet, user: ofPod},
	{name: "pod_swap_usage_bytes", help: helpSwap, readValue: swapUsed, user: ofPod},
	{name: "resource_scrape_error", help: helpFailed, user: ofError},
	{name: "scrape_error", help: helpFailed, user: ofError},
}

func cpuSeconds(f *userFigures) (at time.Time, v float64, ok bool) {
	if f.cpu == nil || f.cpu.UsageCoreNanoSeconds == nil {
		return at, 0, false
	}
	return f.cpu.Time.Time, float64(*f.cpu.UsageCoreNanoSeconds) / float64(time.Second), true
}

func workingSet(f *userFigures) (at time.Time, v float64, ok bool) {
	if f.memory == nil || f.memory.WorkingSetBytes == nil {
		return at, 0, false
	}
	return f.memory.Time.Time, float64(*f.memory.WorkingSetBytes), true
}

func swapUsed(f *userFigures) (at time.Time, v float64, ok bool) {
	if f.swap == nil || f.swap.SwapUsageBytes == nil {
		return at, 0, false
	}
	return f.swap.Time.Time, float64(*f.swap.SwapUsageBytes), true
}

func swapLimit(f *userFigures) (at time.Time, v float64, ok bool) {
	if f.swap == nil || f.swap.SwapAvailableBytes == nil {
		return at, 0, false
	}
	limit := *f.swap.SwapAvailableBytes
	if f.swap.SwapUsageBytes != nil {
		limit += *f.swap.SwapUsageBytes
	}
	return f.swap.Time.Time, float64(limit), true
}

// startTime returns the value of a metric for the start time, in seconds. The time of the
// measurement is zero, because the value does not change.
func startTime(f *userFigures) (at time.Time, v float64, ok bool) {
	return at, float64(f.started.UnixNano()) / float64(time.Second), f.started.Unix() > 0
}
