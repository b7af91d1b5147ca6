package realtime

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// Reasons of a Refusal.
const (
	Forbidden   = "RealTimeForbidden"   // the annotation is invalid, or the configuration does not allow it
	Unavailable = "RealTimeUnavailable" // the configuration allows it, but the node cannot fulfil it
)

// A Refusal is the error for a pod whose annotations request settings that the node does not allow or does not support. The message names
// the annotation and the field of the configuration.
type Refusal struct{ Reason, Message string }

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Kernel contains the facts about the kernel that limit real-time scheduling.
type Kernel struct {
	// Throttle is the CPU time of FIFO and RR in each Period (kernel.sched_rt_runtime_us). It is negative if they are not throttled.
	Throttle, Period time.Duration
	// Budgets is set if FIFO and RR need a budget of their cgroup: the kernel has RT_GROUP_SCHED, and the cpu controller is in
	// cgroup v1.
	Budgets bool
}

// ReadKernel reads the facts from the files of the host. If a file is missing, the kernel's default is returned.
func ReadKernel(host fs.FS) Kernel {
	k := Kernel{Throttle: 950 * time.Millisecond, Period: time.Second}
	for file, value := range map[string]*time.Duration{"sched_rt_runtime_us": &k.Throttle, "sched_rt_period_us": &k.Period} {
		text, err := fs.ReadFile(host, "proc/sys/kernel/"+file)
		if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil {
			*value = time.Duration(n) * time.Microsecond
		}
	}
	for _, dir := range []string{"cpu", "cpu,cpuacct"} {
		if _, err := fs.Stat(host, "sys/fs/cgroup/"+dir+"/cpu.rt_runtime_us"); err == nil {
			k.Budgets = true
		}
	}
	return k
}

// Node contains the facts about the node that decide about a request.
type Node struct {
	Config    config.RealTime
	StaticCPU bool // the CPU manager assigns exclusive CPUs
	Remote    bool // the containers run in another runtime, which has no way to request real time
	Kernel    Kernel
	// Running returns the values of the annotation keys.ContainerScheduler of a pod's running containers, by container name. They
	// differ from the pod's annotations if those were changed after the start. Nil means that no pod runs.
	Running func(types.UID) map[string]string
}

// Check returns the settings of a pod's containers, or a Refusal. The list others contains the other pods that run on the
// node or may run there; their requests count against the node's bandwidth.
func Check(pod *v1.Pod, others []*v1.Pod, n Node) (map[string]Settings, error) {
	if !Requested(pod) {
		return nil, nil
	}
	all, err := Parse(pod)
	if err != nil {
		return nil, &Refusal{Forbidden, err.Error()}
	}
	index := slices.IndexFunc(n.Config.Pods, func(r config.RealTimePods) bool { return matches(&r, pod) })
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		if index < 0 {
			return nil, s.refuse(name, Forbidden, "no element of realTime.pods of the EdgeConfiguration has the pod's namespace, name and "+
				"source (%s)", sourceOf(pod))
		}
		rule := checkedRule{&n.Config.Pods[index], fmt.Sprintf("realTime.pods[%d]", index), name}
		if err := rule.check(s); err != nil {
			return nil, err
		}
		if err := n.checkHost(pod, name, s); err != nil {
			return nil, err
		}
		if s.Scheduler.HasPriority() {
			s.BusyLimit, s.Budget = n.Config.BusyLimit.Duration, n.budget(pod, name)
		}
		all[name] = s
	}
	return all, n.checkBandwidth(pod, all, others)
}

// matches reports whether a rule selects a pod.
func matches(r *config.RealTimePods, pod *v1.Pod) bool {
	fits := func(name string) func(string) bool {
		return func(pattern string) bool {
			ok, err := path.Match(pattern, name)
			return err == nil && ok
		}
	}
	return slices.ContainsFunc(r.Namespaces, fits(pod.Namespace)) && slices.Contains(r.Sources, sourceOf(pod)) &&
		(len(r.Names) == 0 || slices.ContainsFunc(r.Names, fits(pod.Name)))
}

func sourceOf(pod *v1.Pod) string { return pod.Annotations[keys.ConfigSource] }

// refuse returns a Refusal that names an annotation that causes the settings.
func (s Settings) refuse(container, reason, format string, args ...any) error {
	prefix := keys.IsolatedCPUs
	switch {
	case s.Scheduler.Policy != "":
		prefix = keys.Scheduler
	case s.IO.Class != "":
		prefix = keys.IOPriority
	case s.LockedMemory != 0:
		prefix = keys.LockedMemory
	}
	return refuse(prefix+container, reason, format, args...)
}

func refuse(annotation, reason, format string, args ...any) error {
	return &Refusal{reason, "annotation " + annotation + ": " + fmt.Sprintf(format, args...)}
}

// A checkedRule is the rule for a pod, with its path in the configuration and the name of a container.
type checkedRule struct {
	*config.RealTimePods
	path, container string
}

// check returns a Refusal if the settings exceed the rule.
func (r checkedRule) check(s Settings) error {
	const of = "%s of %s of the EdgeConfiguration"
	p := s.Scheduler
	switch at := keys.Scheduler + r.container; {
	case p.Policy != "" && !slices.Contains(r.Policies, p.Policy):
		return refuse(at, Forbidden, "%s is not in "+of, p.Policy, "policies", r.path)
	case p.HasPriority() && int32(p.Priority) > r.HighestPriority():
		return refuse(at, Forbidden, "priority %d is higher than %d, "+of, p.Priority, r.HighestPriority(), "maxPriority", r.path)
	case p.Policy != "" && !p.IsRealTime() && int32(p.Nice) < r.MinNice:
		return refuse(at, Forbidden, "nice %d is lower than %d, "+of, p.Nice, r.MinNice, "minNice", r.path)
	case s.IO.Class != "" && !slices.Contains(r.IOClasses, s.IO.Class):
		return refuse(keys.IOPriority+r.container, Forbidden, "%s is not in "+of, s.IO.Class, "ioClasses", r.path)
	case s.LockedMemory > r.LockedMemory():
		return refuse(keys.LockedMemory+r.container, Forbidden, "%d bytes are more than %d, "+of, s.LockedMemory, r.LockedMemory(),
			"maxLockedMemory", r.path)
	case s.IsolatedCPUs && !r.IsolatedCPUs:
		return refuse(keys.IsolatedCPUs+r.container, Forbidden, "not allowed by "+of, "isolatedCPUs", r.path)
	}
	return nil
}

// checkHost returns a Refusal if the node cannot fulfil what its configuration allows.
func (n Node) checkHost(pod *v1.Pod, container string, s Settings) error {
	p, at := s.Scheduler, keys.Scheduler+container
	_, ctr := podspec.Find(&pod.Spec, container)
	switch {
	case n.Remote:
		return s.refuse(container, Unavailable, "the runtime at containerRuntimeEndpoint has no way to request it, so realTime.pods of "+
			"the EdgeConfiguration has no effect: use islet's own runtime")
	case p.IsRealTime() && n.Kernel.Throttle == 0:
		return refuse(at, Unavailable, "kernel.sched_rt_runtime_us is 0, so the kernel runs no process with %s: set it to 950000, "+
			"its default", p.Policy)
	case p.HasPriority() && n.Kernel.Throttle < 0 && !n.Config.AllowUnthrottled:
		return refuse(at, Unavailable, "kernel.sched_rt_runtime_us is negative, so a process with %s could take all time of a CPU: set it "+
			"to 950000, its default, or set realTime.allowUnthrottled of the EdgeConfiguration", p.Policy)
	case p.Policy == config.PolicyDeadline && n.StaticCPU:
		return refuse(at, Unavailable, "the kernel accepts DEADLINE only for processes that may use all CPUs, and cpuManagerPolicy static "+
			"takes CPUs from them")
	case p.HasPriority() && n.Kernel.Budgets && (pod.Spec.Resources != nil || demand.Class(pod) != v1.PodQOSGuaranteed):
		return refuse(at, Unavailable, "this kernel has real-time budgets for cgroups (RT_GROUP_SCHED): %s needs a Guaranteed pod whose "+
			"containers have CPU limits", p.Policy)
	case s.IsolatedCPUs && demand.ExclusiveCPUs(pod, ctr) == 0:
		return refuse(keys.IsolatedCPUs+container, Unavailable, "only containers with exclusive CPUs get isolated ones: the pod must be "+
			"Guaranteed, and the container must request whole CPUs")
	}
	return nil
}

// budget returns the CPU time per period and CPU of a container with FIFO or RR: its CPU limit, but at most the time at
// which the kernel throttles. It is 0 on a kernel without budgets for cgroups.
func (n Node) budget(pod *v1.Pod, container string) time.Duration {
	_, ctr := podspec.Find(&pod.Spec, container)
	if !n.Kernel.Budgets || ctr == nil {
		return 0
	}
	most := n.Kernel.Period
	if n.Kernel.Throttle >= 0 {
		most = min(most, n.Kernel.Throttle)
	}
	milli := min(ctr.Resources.Limits.Cpu().MilliValue(), 1000)
	return min(n.Kernel.Period/1000*time.Duration(milli), most)
}

// Budgets returns the budget of a pod's cgroup for FIFO and RR, and the budget of all pods together. The budget of the pod is 0 on a
// kernel without budgets for cgroups.
func (n Node) Budgets(pod *v1.Pod) (own, all time.Duration) {
	settings, err := Parse(pod)
	if err != nil {
		return 0, 0
	}
	for name, s := range settings {
		if s.Scheduler.HasPriority() {
			own += n.budget(pod, name)
		}
	}
	all = n.Kernel.Period / 100 * time.Duration(n.Config.Bandwidth)
	if n.Kernel.Throttle >= 0 {
		all = min(all, n.Kernel.Throttle)
	}
	return own, all
}

// checkBandwidth returns a Refusal if all pods together exceed the node's bandwidth. If the
// annotations of a pod were changed and request less, the policies of its running containers still count.
func (n Node) checkBandwidth(pod *v1.Pod, all map[string]Settings, others []*v1.Pod) error {
	if n.bandwidth(pod, all) == 0 {
		return nil
	}
	own := n.share(pod, all)
	var taken float64
	for _, o := range others {
		if o.UID != pod.UID {
			settings, _ := Parse(o) // a pod with invalid annotations can have containers from before
			taken += n.share(o, settings)
		}
	}
	if most := float64(n.Config.Bandwidth) / 100; own+taken > most+1e-9 {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if all[name].Scheduler.IsRealTime() {
				return all[name].refuse(name, Unavailable, "the pod needs %.1f%% of a CPU, other pods have %.1f%%, and "+
					"realTime.bandwidth of the EdgeConfiguration is %d%%", own*100, taken*100, n.Config.Bandwidth)
			}
		}
	}
	return nil
}

// share returns the share of a CPU that a pod requests, or that its running containers have, whichever is more for each container.
func (n Node) share(pod *v1.Pod, requested map[string]Settings) (sum float64) {
	most := map[string]float64{}
	for name, s := range requested {
		most[name] = n.containerShare(pod, name, s)
	}
	if n.Running != nil {
		for name, value := range n.Running(pod.UID) {
			var s Settings
			if err := s.set(keys.Scheduler, value); err == nil {
				most[name] = max(most[name], n.containerShare(pod, name, s))
			}
		}
	}
	for _, share := range most {
		sum += share
	}
	return sum
}

// bandwidth returns the share of a CPU that a pod requests.
func (n Node) bandwidth(pod *v1.Pod, all map[string]Settings) (sum float64) {
	for name, s := range all {
		sum += n.containerShare(pod, name, s)
	}
	return sum
}

// containerShare returns the share of a CPU that a container takes from the node's bandwidth.
func (n Node) containerShare(pod *v1.Pod, name string, s Settings) float64 {
	switch {
	case s.Scheduler.Policy == config.PolicyDeadline:
		return s.Scheduler.Runtime.Seconds() / s.Scheduler.Period.Seconds()
	case s.Scheduler.HasPriority() && n.Kernel.Period > 0:
		return n.budget(pod, name).Seconds() / n.Kernel.Period.Seconds()
	}
	return 0
}
