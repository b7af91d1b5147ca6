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
	PodPidsLimit int64            // if it is not positive, half of the limit of all pods
	CPUPeriod    int64            // in microseconds; 100 ms if it is 0, no CPU limits if it is negative
	All          Limits           // limits of all pods together
	Others       []EnforcedCgroup // the system's cgroups to limit
	Memory       Memory           // protection of pods' memory
	// Exclusive reports whether a container of the pod has exclusive CPUs. Such a pod has no CPU
	// quota. If Exclusive is nil, no pod has exclusive CPUs.
	Exclusive func(*v1.Pod) bool
	// Took, if not nil, is called with the duration of each "create", "update" or "destroy" of a
	// pod's cgroup.
	Took func(operation string, took time.Duration)
	// Tell, if not nil, is called with events of the node.
	Tell func(warning bool, reason, message string)
	Log  *slog.Logger
}

// Pods creates and removes the cgroups of pods. Its methods are safe for concurrent use.
type Pods struct {
	c       Config
	root    name
	systemd bool
	// write changes the limits of an existing cgroup. It is set, except in tests.
	write func(name, *cgroups.Resources) error

	mu sync.Mutex
	// pids is set together with base.
	pids pidLimits
	// base has the directories of kubepods and the QoS classes, by class and controller. It is nil
	// until they are created.
	base     map[v1.PodQOSClass]map[string]string
	prepared map[types.UID]preparedCgroup
	// burstable has the CPU requests of burstable pods, in millicores. The key is the last element
	// of the path of the pod's cgroup.
	burstable map[string]int64
	// above caches the directories of the QoS classes, by class and controller, also of those that
	// do not exist.
	above map[v1.PodQOSClass]map[string]string
	// limitFailed is the time of the last failure to set the memory limit of all pods. It is zero
	// once the limit is set.
	limitFailed time.Time
}

// New validates the configuration. It creates no cgroup.
func New(c Config) (*Pods, error) {
	if c.Driver != Cgroupfs && c.Driver != Systemd {
		return nil, fmt.Errorf("cgroup driver %q: must be %s or %s", c.Driver, Cgroupfs, Systemd)
	}
	if c.Log == nil {
		return nil, errors.New("cgroup: no logger")
	}
	p := &Pods{
		c: c, systemd: c.Driver == Systemd, prepared: map[types.UID]preparedCgroup{}, burstable: map[string]int64{},
		above: map[v1.PodQOSClass]map[string]string{},
	}
	p.root, p.write = rootName(c.Root), p.set
	return p, nil
}

func rootName(root string) (n name) {
	for part := range strings.SplitSeq(root, "/") {
		if part != "" {
			n = append(n, strings.TrimSuffix(part, ".slice"))
		}
	}
	return n
}

// Path returns the path of kubepods relative to the hierarchy's root.
func Path(driver, root string) string {
	n := qosName(rootName(root), v1.PodQOSGuaranteed)
	if driver == Systemd {
		return n.slices()
	}
	return n.cgroupfs()
}

// A preparedCgroup is a cgroup that Prepare created, with its limits. The limits are stored,
// because a pod that could not start yet may be resized before the next call of Prepare.
type preparedCgroup struct {
	cgroups.Manager
	is bounds
}

// Name returns the name of the feature.
func (p *Pods) Name() string { return "cgroup" }

// Prepare creates the pod's cgroup with its limits.
func (p *Pods) Prepare(_ context.Context, pod *v1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	limits := podLimits(pod, 0, p.period(pod))
	is := bounds{memory: limits.Memory, quota: limits.CpuQuota, period: int64(limits.CpuPeriod), shares: int64(limits.CpuShares)}
	if was := p.prepared[pod.UID]; was.is == is && was.Manager != nil && anyExists(was.GetPaths()) {
		return nil
	}
	if err := p.makeBase(); err != nil {
		return err
	}
	p.limitAll()
	c := demand.Class(pod)
	n := podName(p.root, c, pod.UID)
	controllers := []string{"cpu", "memory", "pids"}
	limits = podLimits(pod, p.pids.pod, p.period(pod)) // a second time, because makeBase sets p.pids
	limits.Unified = changed(filepath.Join(p.base[c][""], p.leaf(n)), p.c.Memory.forPod(pod))
	above := p.base[c]["hugetlb"]
	if cgroups.IsCgroup2UnifiedMode() {
		above = p.base[c][""]
	}
	if limits.HugetlbLimit = hugePages(pod, above); len(limits.HugetlbLimit) > 0 {
		controllers = append(controllers, "hugetlb")
	}
	paths := p.limitedDirs(c, n, controllers)
	if err := p.adopt(n, limits, paths); err != nil {
		return err
	}
	defer p.took("create", time.Now())
	m, err := p.make(n, limits, paths)
	if err != nil {
		return err
	}
	p.prepared[pod.UID] = preparedCgroup{m, is}
	p.keepClasses()
	if c != v1.PodQOSBurstable {
		return nil
	}
	return p.addRequest(n, milli(demand.Requests(pod)))
}

// period returns the period of the pod's CPU quota. A negative value means no quota.
func (p *Pods) period(pod *v1.Pod) int64 {
	if p.c.Exclusive != nil && p.c.Exclusive(pod) {
		return -1
	}
	return p.c.CPUPeriod
}

func (p *Pods) took(operation string, begin time.Time) {
	if p.c.Took != nil {
		p.c.Took(operation, time.Since(begin))
	}
}

// Sandbox sets the parent cgroup in the sandbox's configuration.
func (p *Pods) Sandbox(_ context.Context, pod *v1.Pod, out *api.PodSandboxConfig) error {
	if out.Linux == nil {
		out.Linux = &api.LinuxPodSandboxConfig{}
	}
	n := podName(p.root, demand.Class(pod), pod.UID)
	out.Linux.CgroupParent = n.cgroupfs()
	if p.systemd {
		out.Linux.CgroupParent = n.slices()
	}
	return nil
}

// Ended removes the cgroup of a pod that has no running containers any more.
func (p *Pods) Ended(ctx context.Context, pod *v1.Pod) error { return p.Release(ctx, pod.UID) }

// Release kills the remaining processes of a pod and removes its cgroup. A pod without a cgroup is
// no error. The lock is not held while it waits for processes to end.
func (p *Pods) Release(ctx context.Context, uid types.UID) error {
	for _, c := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		n := podName(p.root, c, uid)
		paths, err := p.dirs(c, n)
		if err != nil {
			return fmt.Errorf("find the cgroup of pod %s: %w", uid, err)
		}
		if gone := !p.systemd && removeEmpty(paths); gone || !anyExists(paths) {
			continue
		}
		m, err := manager.NewWithPaths(n.config(p.systemd, &cgroups.Resources{SkipDevices: true}), paths)
		if err != nil {
			return fmt.Errorf("find the cgroup of pod %s: %w", uid, err)
		}
		defer p.took("destroy", time.Now())
		if _, err := kill(ctx, slices.Collect(maps.Values(m.GetPaths()))...); err != nil {
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
		p.limitAll()
		p.keepClasses()
	}
	return p.removeRequest(podName(p.root, v1.PodQOSBurstable, uid))
}

// dirs returns the directories of a pod's cgroup by controller. They need not exist. The
// directories of the class are cached.
func (p *Pods) dirs(c v1.PodQOSClass, n name) (map[string]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	above := p.above[c]
	if above == nil {
		m, err := manager.New(n[:len(n)-1].config(p.systemd, &cgroups.Resources{SkipDevices: true}))
		if err != nil {
			return nil, err
		}
		above = m.GetPaths()
		p.above[c] = above
	}
	paths := map[string]string{}
	for controller, dir := range above {
		paths[controller] = filepath.Join(dir, p.leaf(n))
	}
	return paths, nil
}

// anyExists reports whether at least one of the cgroup's directories exists. On v1 there is one for
// each controller, and a removal may have been interrupted.
func anyExists(paths map[string]string) bool {
	for _, path := range paths {
		if cgroups.PathExists(path) {
			return true
		}
	}
	return false
}

// removeEmpty removes the directories that have neither processes nor nested cgroups. gone reports
// whether no directory is left. Usually all directories of an ended pod are empty, and searching a
// dozen of them for processes costs more than removing them.
func removeEmpty(paths map[string]string) (gone bool) {
	gone = true
	for _, path := range paths {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			gone = false
		}
	}
	return gone
}

// makeBase creates kubepods and the QoS classes, unless it has done so before.
func (p *Pods) makeBase() error {
	if p.base != nil {
		return nil
	}
	base := map[v1.PodQOSClass]map[string]string{}
	pids := findPIDLimits(kernelDir, p.c.PodPidsLimit)
	for _, c := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		r := &cgroups.Resources{SkipDevices: true, CpuShares: minShares}
		if c == v1.PodQOSGuaranteed { // the class Guaranteed has no cgroup of its own: this is kubepods
			r.CpuShares = shares(cmp.Or(p.c.All.Milli, int64(runtime.NumCPU())*1000))
		}
		n := qosName(p.root, c)
		m, err := manager.New(n.config(p.systemd, r))
		if err != nil {
			return fmt.Errorf("create cgroup %s: %w", n.cgroupfs(), err)
		}
		base[c] = m.GetPaths()
		switch counted := countsPIDs(m); {
		case c == v1.PodQOSGuaranteed && counted:
			r.PidsLimit = pidsLimit(cmp.Or(p.c.All.PIDs, pids.all))
		case c == v1.PodQOSGuaranteed && p.c.PodPidsLimit <= 0:
			pids.pod = 0 // without the controller, a default limit must not cause an error
		}
		if c == v1.PodQOSBurstable && anyExists(m.GetPaths()) {
			p.findBurstable(base[c])
			continue // after a restart, its shares are those of its running pods
		}
		if _, err := p.make(n, r, nil); err != nil {
			return err
		}
	}
	p.base, p.pids, p.limitFailed = base, pids, time.Unix(0, 0)
	return nil
}

// limitedDirs returns the directories, by controller, in which a pod's cgroup is created on v1. These
// are only the controllers for which the pod has limits, because each directory takes time. The OCI
// runtime creates the others together with those of the first container. For v2 and systemd it
// returns nil, which means all controllers.
func (p *Pods) limitedDirs(c v1.PodQOSClass, n name, controllers []string) map[string]string {
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

// make creates a cgroup, or changes the limits of an existing one, in the given directories by
// controller. If paths is nil, it does so for all controllers.
func (p *Pods) make(n name, r *cgroups.Resources, paths map[string]string) (cgroups.Manager, error) {
	r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares) // v2 has weights instead of shares
	m, err := manager.NewWithPaths(n.config(p.systemd, r), paths)
	if err == nil {
		err = m.Apply(-1)
	}
	if err == nil {
		err = m.Set(r)
	}
	if err != nil {
		return nil, fmt.Errorf("create cgroup %s: %w", n.cgroupfs(), err)
	}
	return m, nil
}

// Clean removes kubepods and the QoS classes from a node that is being cleaned up. Then it removes
// Root and its parents, as long as they are empty. It fails if a pod still has a cgroup.
func (p *Pods) Clean() error {
	var errs []error
	for _, c := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort, v1.PodQOSGuaranteed} {
		m, err := manager.New(qosName(p.root, c).config(p.systemd, &cgroups.Resources{SkipDevices: true}))
		if err == nil && anyExists(m.GetPaths()) {
			err = m.Destroy()
		}
		errs = append(errs, err)
	}
	for i := len(p.root); i > 0 && !p.systemd; i-- { // systemd removes empty slices itself
		m, err := manager.New(p.root[:i].config(p.systemd, &cgroups.Resources{SkipDevices: true}))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, path := range m.GetPaths() {
			unix.Rmdir(path) // fails if it has other cgroups or processes
		}
	}
	p.base = nil
	return errors.Join(errs...)
}
