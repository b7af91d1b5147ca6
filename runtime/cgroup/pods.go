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

// Drivers.
const (
	Cgroupfs = "cgroupfs"
	Systemd  = "systemd"
)

// Config is what New needs.
type Config struct {
	Driver       string // Cgroupfs or Systemd
	Root         string // where kubepods is, "" or "/" for the hierarchy's root
	PodPidsLimit int64  // 0 or less: half of what all pods may have
	CPUPeriod    int64  // of CPU quotas, in microseconds; 0: 100 ms; negative: CPU limits are not enforced
	All          Limits // of all pods together
	Others       []Held // cgroups that are not the pods', but held to what is kept for them
	Memory       Memory // what is kept of it for whom
	// Exclusive reports whether a container of a pod has CPUs of its own: the pod has no quota;
	// nil: none has.
	Exclusive func(*v1.Pod) bool
	// Took, when set, is told how long it took to "create", "update" or "destroy" the
	// cgroup of a pod.
	Took func(operation string, took time.Duration)
	// Tell takes events of the node; nil: nobody does.
	Tell func(warning bool, reason, message string)
	Log  *slog.Logger
}

// Pods keeps the cgroups of pods. Its methods may be called at once.
type Pods struct {
	c       Config
	root    name
	systemd bool

	mu        sync.Mutex
	pids      pidLimits                            // found with base
	base      map[v1.PodQOSClass]map[string]string // where kubepods and the classes are, by controller; nil: not made yet
	prepared  map[types.UID]prepared
	burstable map[string]int64                     // thousandths of a CPU asked for, by the last part of the cgroup's path
	above     map[v1.PodQOSClass]map[string]string // where the classes would be, by controller, as far as they were looked up
	late      time.Time                            // when pods together could not be held to their memory; zero: they are
}

// New checks the configuration. It makes nothing.
func New(c Config) (*Pods, error) {
	if c.Driver != Cgroupfs && c.Driver != Systemd {
		return nil, fmt.Errorf("cgroup driver %q: it is %s or %s", c.Driver, Cgroupfs, Systemd)
	}
	if c.Log == nil {
		return nil, errors.New("cgroup: no logger")
	}
	p := &Pods{c: c, systemd: c.Driver == Systemd, prepared: map[types.UID]prepared{}, burstable: map[string]int64{}, above: map[v1.PodQOSClass]map[string]string{}}
	p.root = rootName(c.Root)
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

// Path is where all pods are, from the root of the hierarchies.
func Path(driver, root string) string {
	n := qosName(rootName(root), v1.PodQOSGuaranteed)
	if driver == Systemd {
		return n.slices()
	}
	return n.cgroupfs()
}

// A prepared is a cgroup that Prepare made, and what it was to be held to. A pod that could
// not start yet may have been resized since.
type prepared struct {
	cgroups.Manager
	is bounds
}

// Name names the hook.
func (p *Pods) Name() string { return "cgroup" }

// Prepare makes the pod's cgroup with its limits.
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
	p.holdAll()
	c := demand.Class(pod)
	n := podName(p.root, c, pod.UID)
	controllers := []string{"cpu", "memory", "pids"}
	limits = podLimits(pod, p.pids.pod, p.period(pod)) // which are known with the base
	p.c.Memory.keepPod(pod, limits)
	above := p.base[c]["hugetlb"]
	if cgroups.IsCgroup2UnifiedMode() {
		above = p.base[c][""]
	}
	if limits.HugetlbLimit = hugePages(pod, above); len(limits.HugetlbLimit) > 0 {
		controllers = append(controllers, "hugetlb")
	}
	paths := p.limited(c, n, controllers)
	if err := p.adopt(n, limits, paths); err != nil {
		return err
	}
	defer p.took("create", time.Now())
	m, err := p.make(n, limits, paths)
	if err != nil {
		return err
	}
	p.prepared[pod.UID] = prepared{m, is}
	p.keepClasses()
	if c != v1.PodQOSBurstable {
		return nil
	}
	return p.asks(n, milli(demand.Requests(pod)))
}

// period is of the pod's quota; negative: it has none.
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

// Sandbox tells the runtime where the pod's containers belong.
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

// Ended removes the cgroup of a pod of which nothing runs any more.
func (p *Pods) Ended(ctx context.Context, pod *v1.Pod) error { return p.Release(ctx, pod.UID) }

// Release kills what is left of a pod and removes its cgroup. Of a pod that never
// had one, too. Other pods do not wait for processes that do not end.
func (p *Pods) Release(ctx context.Context, uid types.UID) error {
	for _, c := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		n := podName(p.root, c, uid)
		paths, err := p.places(c, n)
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
			return fmt.Errorf("end what is left of pod %s: %w", uid, err)
		}
		if err := m.Destroy(); err != nil {
			return fmt.Errorf("remove the cgroup of pod %s: %w", uid, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.prepared, uid)
	if p.base != nil {
		p.holdAll()
		p.keepClasses()
	}
	return p.asksNoMore(podName(p.root, v1.PodQOSBurstable, uid))
}

// places are the directories of a pod's cgroup, whether it is there or not, by controller.
// Those of its class are looked up once.
func (p *Pods) places(c v1.PodQOSClass, n name) (map[string]string, error) {
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

// anyExists says whether one of the cgroup's directories is there: on v1 there is
// one per controller, and a removal may have been cut short.
func anyExists(paths map[string]string) bool {
	for _, path := range paths {
		if cgroups.PathExists(path) {
			return true
		}
	}
	return false
}

// removeEmpty removes the directories in which there are neither processes nor cgroups,
// and says whether there are others. Those of a pod that has ended are all empty: looking
// for processes in each of a dozen costs more than removing them.
func removeEmpty(paths map[string]string) (gone bool) {
	gone = true
	for _, path := range paths {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			gone = false
		}
	}
	return gone
}

// makeBase makes the cgroups above the pods', once.
func (p *Pods) makeBase() error {
	if p.base != nil {
		return nil
	}
	base := map[v1.PodQOSClass]map[string]string{}
	pids := findPIDLimits(kernelDir, p.c.PodPidsLimit)
	for _, c := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		r := &cgroups.Resources{SkipDevices: true, CpuShares: minShares}
		if c == v1.PodQOSGuaranteed { // kubepods itself
			r.CpuShares = shares(cmp.Or(p.c.All.Milli, int64(runtime.NumCPU())*1000))
		}
		n := qosName(p.root, c)
		m, err := manager.New(n.config(p.systemd, r))
		if err != nil {
			return fmt.Errorf("make cgroup %s: %w", n.cgroupfs(), err)
		}
		base[c] = m.GetPaths()
		switch counted := countsPIDs(m); {
		case c == v1.PodQOSGuaranteed && counted:
			r.PidsLimit = pidsLimit(cmp.Or(p.c.All.PIDs, pids.all))
		case c == v1.PodQOSGuaranteed && p.c.PodPidsLimit <= 0:
			pids.pod = 0 // what nobody asked for must not fail
		}
		if c == v1.PodQOSBurstable && anyExists(m.GetPaths()) {
			p.findBurstable(base[c])
			continue // after a restart its shares are those of the pods there
		}
		if _, err := p.make(n, r, nil); err != nil {
			return err
		}
	}
	p.base, p.pids, p.late = base, pids, time.Unix(0, 0)
	return nil
}

// limited is where a pod's cgroup is made on v1: only where it has limits, as each
// hierarchy takes its time. In the others the OCI runtime makes it when it makes
// the first container's. Elsewhere it is nil, which is everywhere.
func (p *Pods) limited(c v1.PodQOSClass, n name, controllers []string) map[string]string {
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

// make makes a cgroup, or changes the limits of one that is there, at these paths
// by controller; nil: everywhere.
func (p *Pods) make(n name, r *cgroups.Resources, paths map[string]string) (cgroups.Manager, error) {
	r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares) // for v2, which knows no shares
	m, err := manager.NewWithPaths(n.config(p.systemd, r), paths)
	if err == nil {
		err = m.Apply(-1)
	}
	if err == nil {
		err = m.Set(r)
	}
	if err != nil {
		return nil, fmt.Errorf("make cgroup %s: %w", n.cgroupfs(), err)
	}
	return m, nil
}

// Clean removes the cgroups above the pods', on a node that is given up, up to
// Root and what is above it unless something else is there. It fails while a pod
// has one.
func (p *Pods) Clean() error {
	var errs []error
	for _, c := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort, v1.PodQOSGuaranteed} {
		m, err := manager.New(qosName(p.root, c).config(p.systemd, &cgroups.Resources{SkipDevices: true}))
		if err == nil && anyExists(m.GetPaths()) {
			err = m.Destroy()
		}
		errs = append(errs, err)
	}
	for i := len(p.root); i > 0 && !p.systemd; i-- { // systemd ends slices that nothing is in
		m, err := manager.New(p.root[:i].config(p.systemd, &cgroups.Resources{SkipDevices: true}))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, path := range m.GetPaths() {
			unix.Rmdir(path) // fails where others have a cgroup or a process
		}
	}
	p.base = nil
	return errors.Join(errs...)
}
