package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// Cgroup drivers.
const (
	Cgroupfs = "cgroupfs"
	Systemd  = "systemd"
)

// Config configures New.
type Config struct {
	Driver       string           // Cgroupfs or Systemd
	Root         string           // path of the cgroup above kubepods; "" or "/" for the root
	PodPidsLimit int64            // if not positive, half of the limit of kubepods
	CPUPeriod    int64            // in microseconds; 0 means 100 ms, negative means no CPU quota
	Kubepods     Limits           // limits of kubepods
	System       []EnforcedCgroup // system cgroups
	Memory       Memory           // protection of the memory of pods
	// Exclusive reports whether a container of the pod has exclusive CPUs. Such a pod gets no CPU
	// quota. Nil means that no pod has exclusive CPUs.
	Exclusive func(*v1.Pod) bool
	// RealTime, if not nil, returns the budget of a pod for FIFO and RR, and the budget of all pods
	// together. The budget of a pod is 0 unless the kernel has budgets for cgroups.
	RealTime func(*v1.Pod) (own, all time.Duration)
	// Observe, if not nil, is called with the duration of each operation on the cgroup of a pod:
	// "create" or "destroy".
	Observe func(operation string, took time.Duration)
	// RecordEvent, if not nil, is called to record an event of the node.
	RecordEvent func(warning bool, reason, message string)
	Log         *slog.Logger
}

// Pods creates and removes the cgroups of pods. Its methods are safe for concurrent use.
type Pods struct {
	c       Config
	root    cgroupName
	systemd bool
	// write changes the limits of an existing cgroup. Outside of tests this is p.set.
	write func(cgroupName, *cgroups.Resources) error

	mu sync.Mutex
	// pids is set when base is set.
	pids pidLimits
	// base contains the directories of kubepods and the QoS classes, by class and controller. It is
	// nil until createBase has created them.
	base     map[v1.PodQOSClass]map[string]string
	prepared map[types.UID]preparedCgroup
	// burstable contains the CPU requests of Burstable pods in millicores. The key is the last
	// element of the path of the pod's cgroup.
	burstable map[string]int64
	// classDirs caches the directories of the QoS classes, by class and controller. The directories
	// may not exist.
	classDirs map[v1.PodQOSClass]map[string]string
	// kubepodsFailed is true if the limits of kubepods could not be set, and unlimited contains the system cgroups with such limits.
	kubepodsFailed bool
	unlimited      []EnforcedCgroup
	retrying       bool // a timer will call retryLimits
}

// New validates the configuration and creates no cgroup.
func New(c Config) (*Pods, error) {
	if c.Driver != Cgroupfs && c.Driver != Systemd {
		return nil, fmt.Errorf("cgroup driver %q: must be %s or %s", c.Driver, Cgroupfs, Systemd)
	}
	if c.Log == nil {
		return nil, errors.New("cgroup: no logger")
	}
	p := &Pods{
		c: c, systemd: c.Driver == Systemd, prepared: map[types.UID]preparedCgroup{}, burstable: map[string]int64{},
		classDirs: map[v1.PodQOSClass]map[string]string{},
	}
	p.root, p.write = rootName(c.Root), p.set
	return p, nil
}

func rootName(root string) (n cgroupName) {
	for part := range strings.SplitSeq(root, "/") {
		if part != "" {
			n = append(n, strings.TrimSuffix(part, ".slice"))
		}
	}
	return n
}

// Path returns the path of kubepods relative to the root of the hierarchy.
func Path(driver, root string) string {
	n := qosName(rootName(root), v1.PodQOSGuaranteed)
	if driver == Systemd {
		return n.slicePath()
	}
	return n.cgroupfsPath()
}

// A preparedCgroup is a cgroup that Prepare created, and its limits. Prepare compares the limits with the pod's limits when it is called
// again, because a pod may be resized before it has started.
type preparedCgroup struct {
	cgroups.Manager
	limits wantedBounds
}

// wantedBounds contains the values on which the limits of a pod's cgroup and of the QoS classes depend. The protection and throttling of
// memory depend on the memory request, and on whether spec.resources has any.
type wantedBounds struct {
	currentBounds
	memoryRequest int64 // bytes
	asWhole       bool  // spec.resources has a request or a limit
}

// boundsOf returns the wantedBounds of a pod.
func (p *Pods) boundsOf(pod *v1.Pod) wantedBounds {
	limits, requests := podLimits(pod, 0, p.quotaPeriod(pod)), demand.Requests(pod)
	return wantedBounds{
		currentBounds{memory: limits.Memory, quota: limits.CpuQuota, period: int64(limits.CpuPeriod), shares: int64(limits.CpuShares)},
		requests.Memory().Value(), demand.AsWhole(pod),
	}
}

// Name returns the name of the feature.
func (p *Pods) Name() string { return "cgroup" }

// Prepare creates the pod's cgroup with its limits.
func (p *Pods) Prepare(_ context.Context, pod *v1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.prepare(pod); err != nil {
		return err
	}
	return p.raiseBudget(pod)
}

// prepare creates or updates the pod's cgroup. The caller holds mu.
func (p *Pods) prepare(pod *v1.Pod) error {
	want := p.boundsOf(pod)
	if last := p.prepared[pod.UID]; last.limits == want && last.Manager != nil && anyExists(last.GetPaths()) {
		return nil
	}
	first := p.base == nil
	if err := p.createBase(); err != nil {
		return err
	}
	if first {
		p.limitKubepods()
	}
	c := demand.Class(pod)
	n := podName(p.root, c, pod.UID)
	controllers := []string{"cpu", "memory", "pids"}
	limits := podLimits(pod, p.pids.pod, p.quotaPeriod(pod))
	limits.Unified = changedValues(filepath.Join(p.base[c][""], p.leafName(n)), p.c.Memory.forPod(pod))
	above := p.base[c]["hugetlb"]
	if cgroups.IsCgroup2UnifiedMode() {
		above = p.base[c][""]
	}
	if limits.HugetlbLimit = hugePages(pod, above); len(limits.HugetlbLimit) > 0 {
		controllers = append(controllers, "hugetlb")
	}
	paths := p.limitedDirs(c, n, controllers)
	if err := p.adoptLimits(n, limits, paths); err != nil {
		return err
	}
	defer p.observeDuration("create", time.Now())
	m, err := p.setLimits(n, limits, paths)
	if err != nil {
		return err
	}
	p.prepared[pod.UID] = preparedCgroup{m, want}
	p.updateClasses()
	if c != v1.PodQOSBurstable {
		return nil
	}
	return p.addRequest(n, cpuMillis(demand.Requests(pod)))
}

// quotaPeriod returns the period of the pod's CPU quota. A negative value means no quota.
func (p *Pods) quotaPeriod(pod *v1.Pod) int64 {
	if p.c.Exclusive != nil && p.c.Exclusive(pod) {
		return -1
	}
	return p.c.CPUPeriod
}

func (p *Pods) observeDuration(operation string, begin time.Time) {
	if p.c.Observe != nil {
		p.c.Observe(operation, time.Since(begin))
	}
}

// Sandbox sets the parent cgroup in the sandbox's configuration.
func (p *Pods) Sandbox(_ context.Context, pod *v1.Pod, out *api.PodSandboxConfig) error {
	if out.Linux == nil {
		out.Linux = &api.LinuxPodSandboxConfig{}
	}
	n := podName(p.root, demand.Class(pod), pod.UID)
	out.Linux.CgroupParent = n.cgroupfsPath()
	if p.systemd {
		out.Linux.CgroupParent = n.slicePath()
	}
	return nil
}

// Ended removes the cgroup of a pod whose containers have all ended.
func (p *Pods) Ended(ctx context.Context, pod *v1.Pod) error { return p.Release(ctx, pod.UID) }

// Release kills the remaining processes of a pod and removes its cgroup. A missing cgroup is not an
// error. Release does not hold the lock while it waits for processes to end.
func (p *Pods) Release(ctx context.Context, uid types.UID) error {
	for _, c := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		n := podName(p.root, c, uid)
		paths, err := p.findDirs(c, n)
		if err != nil {
			return fmt.Errorf("find the cgroup of pod %s: %w", uid, err)
		}
		if removed := !p.systemd && removeEmpty(paths); removed || !anyExists(paths) {
			continue
		}
		m, err := manager.NewWithPaths(n.cgroupConfig(p.systemd, &cgroups.Resources{SkipDevices: true}), paths)
		if err != nil {
			return fmt.Errorf("find the cgroup of pod %s: %w", uid, err)
		}
		defer p.observeDuration("destroy", time.Now())
		if _, err := killCgroup(ctx, slices.Collect(maps.Values(m.GetPaths()))...); err != nil {
			return fmt.Errorf("kill the remaining processes of pod %s: %w", uid, err)
		}
		if err := m.Destroy(); err != nil {
			return fmt.Errorf("remove the cgroup of pod %s: %w", uid, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.prepared, uid)
	if p.base != nil {
		p.updateClasses()
	}
	return p.removeRequest(podName(p.root, v1.PodQOSBurstable, uid))
}

// findDirs returns the directories of a pod's cgroup by controller. The directories may not exist.
func (p *Pods) findDirs(c v1.PodQOSClass, n cgroupName) (map[string]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	above := p.classDirs[c]
	if above == nil {
		m, err := manager.New(n[:len(n)-1].cgroupConfig(p.systemd, &cgroups.Resources{SkipDevices: true}))
		if err != nil {
			return nil, err
		}
		above = m.GetPaths()
		p.classDirs[c] = above
	}
	paths := map[string]string{}
	for controller, dir := range above {
		paths[controller] = filepath.Join(dir, p.leafName(n))
	}
	return paths, nil
}

// anyExists reports whether at least one of the directories of a cgroup exists. With cgroup v1, a
// cgroup has one directory for each controller, and an interrupted removal leaves some of them.
func anyExists(paths map[string]string) bool {
	for _, path := range paths {
		if cgroups.PathExists(path) {
			return true
		}
	}
	return false
}

// removeEmpty removes the directories that have neither processes nor child cgroups. It reports
// whether all directories are removed. The cgroup of an ended pod is usually empty, and removing a
// dozen directories is cheaper than searching them for processes.
func removeEmpty(paths map[string]string) (removed bool) {
	removed = true
	for _, path := range paths {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			removed = false
		}
	}
	return removed
}

// createBase creates kubepods and the cgroups of the QoS classes. It does nothing if base is set.
func (p *Pods) createBase() error {
	if p.base != nil {
		return nil
	}
	base := map[v1.PodQOSClass]map[string]string{}
	pids := findPIDLimits(kernelDir, p.c.PodPidsLimit)
	for _, c := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		r := &cgroups.Resources{SkipDevices: true, CpuShares: demand.MinShares}
		if c == v1.PodQOSGuaranteed { // kubepods; Guaranteed pods have no class cgroup
			r.CpuShares = cpuShares(cmp.Or(p.c.Kubepods.Milli, int64(runtime.NumCPU())*1000))
		}
		n := qosName(p.root, c)
		m, err := manager.New(n.cgroupConfig(p.systemd, r))
		if err != nil {
			return fmt.Errorf("create cgroup %s: %w", n.cgroupfsPath(), err)
		}
		base[c] = m.GetPaths()
		switch counted := countsPIDs(m); {
		case c == v1.PodQOSGuaranteed && counted:
			r.PidsLimit = pidsLimit(cmp.Or(p.c.Kubepods.PIDs, pids.kubepods))
		case c == v1.PodQOSGuaranteed && p.c.PodPidsLimit <= 0:
			pids.pod = 0 // without the controller, setting the default limit would fail
		}
		if c == v1.PodQOSBurstable && anyExists(m.GetPaths()) {
			p.restoreBurstable(base[c])
			continue // keep the shares of the running pods
		}
		if _, err := p.setLimits(n, r, nil); err != nil {
			return err
		}
	}
	p.base, p.pids = base, pids
	return nil
}

// limitedDirs returns the directories of a pod's cgroup for the given controllers, by controller. With cgroup v1,
// creating a directory takes time, so setLimits creates only these. The OCI runtime creates the other directories with
// the first container. With cgroup v2 or systemd, limitedDirs returns nil, which means all controllers.
func (p *Pods) limitedDirs(c v1.PodQOSClass, n cgroupName, controllers []string) map[string]string {
	if p.systemd || cgroups.IsCgroup2UnifiedMode() {
		return nil
	}
	paths := map[string]string{}
	for _, controller := range controllers {
		if above, ok := p.base[c][controller]; ok {
			paths[controller] = filepath.Join(above, n[len(n)-1])
		}
	}
	return paths
}

// setLimits creates a cgroup with limits, or changes the limits of an existing cgroup. The caller passes the directories by controller, or
// nil for all controllers.
func (p *Pods) setLimits(n cgroupName, r *cgroups.Resources, paths map[string]string) (cgroups.Manager, error) {
	r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares) // for cgroup v2
	m, err := manager.NewWithPaths(n.cgroupConfig(p.systemd, r), paths)
	if err == nil {
		err = m.Apply(-1)
	}
	if err == nil {
		err = m.Set(r)
	}
	if err != nil {
		return nil, fmt.Errorf("create cgroup %s: %w", n.cgroupfsPath(), err)
	}
	return m, nil
}

// Clean removes kubepods and the cgroups of the QoS classes when islet is uninstalled. Then it
// removes Config.Root and its parents if they are empty. It fails if a pod still has a cgroup.
func (p *Pods) Clean() error {
	var errs []error
	for _, c := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort, v1.PodQOSGuaranteed} {
		m, err := manager.New(qosName(p.root, c).cgroupConfig(p.systemd, &cgroups.Resources{SkipDevices: true}))
		if err == nil && anyExists(m.GetPaths()) {
			err = m.Destroy()
		}
		errs = append(errs, err)
	}
	for i := len(p.root); i > 0 && !p.systemd; i-- { // systemd removes empty slices itself
		m, err := manager.New(p.root[:i].cgroupConfig(p.systemd, &cgroups.Resources{SkipDevices: true}))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, path := range m.GetPaths() {
			unix.Rmdir(path) // fails if there are other cgroups or processes
		}
	}
	p.base, p.kubepodsFailed = nil, false
	return errors.Join(errs...)
}
