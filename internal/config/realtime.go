package config

import (
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/keys"
)

// RealTime defines which pods may use real-time scheduling, and how much of it.
type RealTime struct {
	// Pods lists the pods whose annotations request real time. A pod may use what the first matching
	// element allows. Without elements, no pod may use any of it.
	Pods []RealTimePods `json:"pods,omitempty"`
	// Bandwidth is the maximum CPU time of all pods with real-time scheduling together, in percent of
	// one CPU. DEADLINE counts with its runtime per period. If the kernel has real-time budgets for
	// cgroups, FIFO and RR count with the container's CPU limit.
	Bandwidth int32 `json:"bandwidth,omitempty"`
	// BusyLimit is the maximum CPU time for which a thread with FIFO or RR may run without a blocking
	// system call. Beyond it, the kernel kills the process.
	BusyLimit metav1.Duration `json:"busyLimit,omitzero"`
	// AllowUnthrottled permits FIFO and RR while kernel.sched_rt_runtime_us is -1. Such a thread can
	// take all of a CPU's time.
	AllowUnthrottled bool `json:"allowUnthrottled,omitempty"`
}

// RealTimePods selects pods and defines what they may request.
type RealTimePods struct {
	// Namespaces are patterns of namespaces. At least one is required.
	Namespaces []string `json:"namespaces"`
	// Names are patterns of pod names. Without names, all pods of the namespaces match.
	Names []string `json:"names,omitempty"`
	// Sources are the sources of the pods: file, http, api, or local (islet apply). At least one is
	// required.
	Sources []string `json:"sources"`
	// Policies are the scheduling policies that the pods may use: OTHER, BATCH, FIFO, RR, DEADLINE.
	Policies []string `json:"policies,omitempty"`
	// MaxPriority is the maximum priority of FIFO and RR. The default is 49, because the kernel's
	// threads for interrupts have priority 50.
	MaxPriority int32 `json:"maxPriority,omitempty"`
	// MinNice is the minimum nice value of OTHER and BATCH, from -20 to 0. 0 means that pods may only
	// lower their own share of CPU time.
	MinNice int32 `json:"minNice,omitempty"`
	// IOClasses are the classes of I/O priority that the pods may use: realtime, best-effort, idle.
	IOClasses []string `json:"ioClasses,omitempty"`
	// MaxLockedMemory is the maximum memory that each process of a container may lock, as a quantity of bytes.
	// Without it, pods may not raise the limit.
	MaxLockedMemory string `json:"maxLockedMemory,omitempty"`
	// IsolatedCPUs permits containers with exclusive CPUs to request CPUs that the kernel isolates.
	IsolatedCPUs bool `json:"isolatedCPUs,omitempty"`
}

// Scheduling policies, as annotations and RealTimePods.Policies name them.
const (
	PolicyOther    = "OTHER"
	PolicyBatch    = "BATCH"
	PolicyFIFO     = "FIFO"
	PolicyRR       = "RR"
	PolicyDeadline = "DEADLINE"
)

// Classes of I/O priority, as annotations and RealTimePods.IOClasses name them.
const (
	IORealTime   = "realtime"
	IOBestEffort = "best-effort"
	IOIdle       = "idle"
)

// These constants limit the settings of real time.
const (
	DefaultMaxPriority = 49
	maxRealTimePods    = 64
	maxBandwidth       = 100 * 4096 // percent of one CPU
	minBusyLimit       = 10 * time.Millisecond
	maxBusyLimit       = 24 * time.Hour
)

// HighestPriority returns the maximum priority of FIFO and RR.
func (r *RealTimePods) HighestPriority() int32 {
	if r.MaxPriority == 0 {
		return DefaultMaxPriority
	}
	return r.MaxPriority
}

// LockedMemory returns the maximum of the locked memory in bytes. It is 0 if pods may not raise the limit.
func (r *RealTimePods) LockedMemory() int64 { return bytesOf(r.MaxLockedMemory) }

// IsolatesCPUs reports whether any pod may request isolated CPUs. If so, no other pod uses these CPUs.
func (r *RealTime) IsolatesCPUs() bool {
	return slices.ContainsFunc(r.Pods, func(p RealTimePods) bool { return p.IsolatedCPUs })
}

func (c *checker) checkRealTime(root *field.Path) {
	rt := &c.edge.RealTime
	if n := len(rt.Pods); n > maxRealTimePods {
		c.errs = append(c.errs, field.TooMany(root.Child("pods"), n, maxRealTimePods))
		return
	}
	for i := range rt.Pods {
		c.checkRealTimePods(root.Child("pods").Index(i), &rt.Pods[i])
	}
	if rt.Bandwidth < 1 || rt.Bandwidth > maxBandwidth {
		c.addInvalid(root.Child("bandwidth"), rt.Bandwidth, "must be between 1 and %d percent of one CPU", maxBandwidth)
	}
	if d := rt.BusyLimit.Duration; d < minBusyLimit || d > maxBusyLimit {
		c.addInvalid(root.Child("busyLimit"), d.String(), "must be between %v and %v", minBusyLimit, maxBusyLimit)
	}
	if rt.IsolatesCPUs() && c.k.CPUManagerPolicy != "static" {
		c.addInvalid(root.Child("pods"), "isolatedCPUs", "the CPU manager assigns isolated CPUs: set cpuManagerPolicy to static")
	}
}

func (c *checker) checkRealTimePods(at *field.Path, p *RealTimePods) {
	for name, list := range map[string][]string{"namespaces": p.Namespaces, "sources": p.Sources} {
		if len(list) == 0 {
			c.errs = append(c.errs, field.Required(at.Child(name), "name each of them: an empty list would be easy to mistake for all"))
		}
	}
	for name, list := range map[string][]string{"namespaces": p.Namespaces, "names": p.Names} {
		for j, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" || len(pattern) > maxPattern {
				c.addInvalid(at.Child(name).Index(j), pattern, "must be a pattern of at most %d bytes, such as control-*", maxPattern)
			}
		}
		if len(list) > maxPatterns {
			c.errs = append(c.errs, field.TooMany(at.Child(name), len(list), maxPatterns))
		}
	}
	c.checkEachOneOf(at.Child("sources"), p.Sources, keys.SourceFile, keys.SourceHTTP, keys.SourceAPI, keys.SourceLocal, keys.SourceBundle)
	c.checkEachOneOf(at.Child("policies"), p.Policies, PolicyOther, PolicyBatch, PolicyFIFO, PolicyRR, PolicyDeadline)
	c.checkEachOneOf(at.Child("ioClasses"), p.IOClasses, IORealTime, IOBestEffort, IOIdle)
	if p.MaxPriority < 0 || p.MaxPriority > 98 {
		c.addInvalid(at.Child("maxPriority"), p.MaxPriority, "must be between 1 and 98; leave it out for %d", DefaultMaxPriority)
	}
	if p.MinNice < -20 || p.MinNice > 0 {
		c.addInvalid(at.Child("minNice"), p.MinNice, "must be between -20 and 0")
	}
	c.checkBytes(at.Child("maxLockedMemory"), p.MaxLockedMemory)
}

// checkEachOneOf checks that each element of a list is one of the allowed values.
func (c *checker) checkEachOneOf(at *field.Path, list []string, allowed ...string) {
	for i, v := range list {
		if !slices.Contains(allowed, v) {
			c.errs = append(c.errs, field.NotSupported(at.Index(i), v, allowed))
		}
	}
}
