package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// retryAfter is the interval at which retryLimits tries again to set limits that could not be set.
const retryAfter = time.Minute

// Limits contains the limits that are set for kubepods or for a system cgroup. A limit of zero is not set.
type Limits struct {
	Milli     int64 // in millicores, set as CPU shares
	Memory    int64 // bytes
	PIDs      int64 // for kubepods, zero means about 90 % of the host's limit
	HugePages []demand.HugePages
}

// LimitsOf converts a resource list to Limits. The parameter pids is the name of the resource for process IDs. If compressible is true, the
// result contains only the CPU (Milli).
func LimitsOf(l v1.ResourceList, pids v1.ResourceName, compressible bool) (out Limits) {
	out.Milli = l.Cpu().MilliValue()
	if compressible {
		return out
	}
	n := l[pids]
	out.Memory, out.PIDs, out.HugePages = l.Memory().Value(), n.Value(), demand.HugePagesOf(l)
	return out
}

// An EnforcedCgroup is an existing cgroup of system daemons whose limits islet sets; see
// enforceNodeAllocatable.
type EnforcedCgroup struct {
	For    string // Kube Reserved or System Reserved, with Compressible for only CPU
	Cgroup string // path as in the configuration, such as /system.slice
	Limits Limits
}

// Reasons of the events that Start sends.
const (
	failedEnforcement = "FailedNodeAllocatableEnforcement"
	enforcedEvent     = "NodeAllocatableEnforced"
)

// Start sets the limits of the cgroups in Config.System. If kubepods exists, it also updates the
// limits of kubepods and the QoS classes. It does not create kubepods.
func (p *Pods) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.limitSystem(p.c.System, false); err != nil {
		return err
	}
	m, err := manager.New(qosName(p.root, v1.PodQOSGuaranteed).cgroupConfig(p.systemd, &cgroups.Resources{SkipDevices: true}))
	if err != nil || !anyExists(m.GetPaths()) {
		return err
	}
	if err := p.createBase(); err != nil {
		return err
	}
	p.limitKubepods()
	p.resetMemory()
	p.updateClasses()
	return nil
}

func (p *Pods) sendEvent(warning bool, reason, message string) {
	if p.c.RecordEvent != nil {
		p.c.RecordEvent(warning, reason, message)
	}
}

// limitSystem sets the limits of system cgroups. If a memory limit is below the memory in use, it sets the other limits and leaves the
// memory limit to retryLimits, because the machine must be able to boot with the same configuration. Any other failure is returned. If
// again is true, it leaves the cgroup to retryLimits after any failure, and reports no failure a second time. The caller holds mu.
func (p *Pods) limitSystem(list []EnforcedCgroup, again bool) error {
	p.unlimited = nil
	for _, h := range list {
		err := p.setSystemLimits(h)
		if err == nil {
			which, _, _ := strings.Cut(h.For, " ")
			p.sendEvent(false, enforcedEvent, "Updated limits on "+strings.ToLower(which)+" reserved cgroup "+h.Cgroup)
			continue
		}
		if !again {
			err = fmt.Errorf("Failed to enforce %s Cgroup Limits on %q: %w", h.For, h.Cgroup, err) // the text of a kubelet
			p.sendEvent(true, failedEnforcement, err.Error())
			if !errors.Is(err, errInUse) {
				return err
			}
			p.c.Log.Warn("the memory limit of a system cgroup could not be set; islet will retry", "error", err)
		}
		p.unlimited = append(p.unlimited, h)
		p.retryLater()
	}
	return nil
}

// retryLater calls retryLimits after retryAfter. The caller holds mu.
func (p *Pods) retryLater() {
	if !p.retrying {
		p.retrying = true
		time.AfterFunc(retryAfter, p.retryLimits)
	}
}

// retryLimits sets the limits of kubepods and of system cgroups that could not be set before.
func (p *Pods) retryLimits() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retrying = false
	if p.kubepodsFailed {
		p.limitKubepods()
	}
	p.limitSystem(p.unlimited, true)
}

// limitKubepods sets the memory and huge page limits of kubepods. It fails if the pods use more memory than the limit, for example after
// the agent was restarted with a smaller limit. Then retryLimits calls it again. Only the first failure is reported. The caller holds mu.
func (p *Pods) limitKubepods() {
	n := qosName(p.root, v1.PodQOSGuaranteed)
	r := &cgroups.Resources{
		SkipDevices: true, Memory: p.c.Kubepods.Memory,
		HugetlbLimit: countedHugePages(p.c.Kubepods.HugePages, p.classDir(v1.PodQOSGuaranteed, "hugetlb")),
	}
	again := p.kubepodsFailed
	p.kubepodsFailed = false
	if r.Memory == 0 && len(r.HugetlbLimit) == 0 {
		return
	}
	err := p.set(n, r)
	if err == nil {
		p.sendEvent(false, enforcedEvent, "Updated Node Allocatable limit across pods")
		return
	}
	p.kubepodsFailed = true
	p.retryLater()
	if again {
		return
	}
	p.c.Log.Warn("the memory limit of kubepods could not be set; islet will retry", "memory", r.Memory, "error", err)
	p.sendEvent(true, failedEnforcement, fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", []string(n), err))
}

// classDir returns the directory of a QoS class for a controller, or "" if the controller does not
// exist.
func (p *Pods) classDir(c v1.PodQOSClass, controller string) string {
	if cgroups.IsCgroup2UnifiedMode() {
		controller = ""
	}
	return p.base[c][controller]
}

// set changes the limits of an existing cgroup. If the memory limit is below the memory in use, it sets the other limits and returns
// errInUse. With cgroup v1 the kernel reclaims the page cache, and rejects a limit that is still too low. With cgroup v2 the kernel would
// kill processes, so set calls makeRoom first.
func (p *Pods) set(n cgroupName, r *cgroups.Resources) error {
	m, err := manager.New(n.cgroupConfig(p.systemd, r))
	if err != nil {
		return err
	}
	if r.Memory > 0 && cgroups.IsCgroup2UnifiedMode() {
		err = makeRoom(m.Path(""), r.Memory, writeOnce)
	}
	if err == nil {
		if err = m.Set(r); err == nil {
			return nil
		}
		if now, failed := readBounds(m); failed == nil && r.Memory > 0 && now.usage > r.Memory {
			err = fmt.Errorf("%w: %w", errInUse, err)
		}
	}
	if errors.Is(err, errInUse) {
		others := *r
		others.Memory = 0
		if failed := m.Set(&others); failed != nil {
			return failed
		}
	}
	return err
}

// setSystemLimits sets the limits of a system cgroup. It is an error if the cgroup does not exist.
func (p *Pods) setSystemLimits(h EnforcedCgroup) error {
	n := p.parsePath(h.Cgroup)
	m, err := manager.New(n.cgroupConfig(p.systemd, &cgroups.Resources{SkipDevices: true}))
	if err != nil {
		return err
	}
	if err := checkComplete(n, m.GetPaths()); err != nil {
		return err
	}
	r := &cgroups.Resources{SkipDevices: true, Memory: h.Limits.Memory, PidsLimit: pidsLimit(h.Limits.PIDs)}
	if h.Limits.Milli > 0 {
		r.CpuShares = cpuShares(h.Limits.Milli)
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares)
	}
	if p.c.Memory.QoS && h.Limits.Memory > 0 {
		r.Unified = map[string]string{memoryMin: strconv.FormatInt(h.Limits.Memory, 10)}
	}
	return p.set(n, r)
}

// parsePath parses the path of a cgroup in the notation of the cgroup driver.
func (p *Pods) parsePath(path string) cgroupName {
	if !p.systemd {
		return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	}
	unit := strings.TrimSuffix(filepath.Base(path), ".slice")
	if unit == "-" || unit == "/" {
		return nil
	}
	n := cgroupName(strings.Split(unit, "-"))
	for i := range n {
		n[i] = strings.ReplaceAll(n[i], "_", "-")
	}
	return n
}

// checkComplete returns an error if a cgroup or one of its controllers is missing. The error has
// the text of a kubelet.
func checkComplete(n cgroupName, paths map[string]string) error {
	var missing []string
	if dir, unified := paths[""]; unified && len(paths) == 1 {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("could not read controllers for cgroup %q: %w", []string(n), err)
		}
		root, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		if err != nil {
			return err
		}
		have := strings.Fields(string(b))
		for _, c := range strings.Fields(string(root)) {
			wanted := slices.Contains([]string{"cpu", "cpuset", "memory", "hugetlb", "pids"}, c)
			if wanted && !slices.Contains(have, c) {
				missing = append(missing, c)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("cgroup %q has some missing controllers: %v", []string(n), strings.Join(missing, ", "))
		}
		return nil
	}
	for _, c := range slices.Sorted(maps.Keys(paths)) {
		wanted := slices.Contains([]string{"cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb"}, c)
		if wanted && !cgroups.PathExists(paths[c]) {
			missing = append(missing, paths[c])
		}
	}
	if len(paths) == 0 {
		return errors.New("no cgroup hierarchy is mounted")
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroup %q has some missing paths: %v", []string(n), strings.Join(missing, ", "))
	}
	return nil
}
