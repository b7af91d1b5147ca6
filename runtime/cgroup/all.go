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

// retryAfter is how long pods are not held anew to memory that they were above.
const retryAfter = time.Minute

// Limits are those of a cgroup that is not one pod's. Zero: none.
type Limits struct {
	Milli     int64 // thousandths of a CPU, as a weight
	Memory    int64 // bytes
	PIDs      int64 // of kubepods: zero is all that the host has but a tenth
	HugePages []demand.HugePages
}

// LimitsOf are those of a list of resources; pids is what it calls process IDs. With
// compressible only the weight of CPUs is one.
func LimitsOf(l v1.ResourceList, pids v1.ResourceName, compressible bool) (out Limits) {
	out.Milli = l.Cpu().MilliValue()
	if compressible {
		return out
	}
	n := l[pids]
	out.Memory, out.PIDs, out.HugePages = l.Memory().Value(), n.Value(), demand.HugePagesOf(l)
	return out
}

// Held is a cgroup of the system, which somebody else made.
type Held struct {
	For    string // whom it is of, in a kubelet's words: Kube Reserved
	Cgroup string // as the configuration has it, such as /system.slice
	Limits Limits
}

// Reasons of the events of Start.
const (
	failedEnforcement = "FailedNodeAllocatableEnforcement"
	enforced          = "NodeAllocatableEnforced"
)

// Start holds the cgroups of the system to what is kept for them: an error says which of
// them is not as it must be. What pods together have of before is brought up to date; where
// there is nothing yet nothing is made.
func (p *Pods) Start() error {
	for _, h := range p.c.Others {
		if err := p.hold(h); err != nil {
			err = fmt.Errorf("Failed to enforce %s Cgroup Limits on %q: %w", h.For, h.Cgroup, err) // a kubelet's words
			p.tell(true, failedEnforcement, err.Error())
			return err
		}
		which, _, _ := strings.Cut(h.For, " ")
		p.tell(false, enforced, "Updated limits on "+strings.ToLower(which)+" reserved cgroup "+h.Cgroup)
	}
	m, err := manager.New(qosName(p.root, v1.PodQOSGuaranteed).config(p.systemd, &cgroups.Resources{SkipDevices: true}))
	if err != nil || !anyExists(m.GetPaths()) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.makeBase(); err != nil {
		return err
	}
	p.holdAll()
	p.keepClasses()
	return nil
}

func (p *Pods) tell(warning bool, reason, message string) {
	if p.c.Tell != nil {
		p.c.Tell(warning, reason, message)
	}
}

// holdAll holds all pods together to their memory and huge pages. That may have to wait:
// an agent may come with less than what runs has. The caller holds mu.
func (p *Pods) holdAll() {
	if p.late.IsZero() || time.Since(p.late) < retryAfter {
		return
	}
	n := qosName(p.root, v1.PodQOSGuaranteed)
	r := &cgroups.Resources{SkipDevices: true, Memory: p.c.All.Memory, HugetlbLimit: counted(p.c.All.HugePages, p.above1(v1.PodQOSGuaranteed, "hugetlb"))}
	p.late = time.Time{}
	if r.Memory == 0 && len(r.HugetlbLimit) == 0 {
		return
	}
	err := p.set(n, r)
	if err == nil {
		p.tell(false, enforced, "Updated Node Allocatable limit across pods")
		return
	}
	p.late = time.Now()
	p.c.Log.Warn("all pods together cannot be held to what the node gives away yet", "memory", r.Memory, "error", err)
	p.tell(true, failedEnforcement, fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", []string(n), err))
}

// above1 is the directory of a class of pods for one controller; empty: there is none.
func (p *Pods) above1(c v1.PodQOSClass, controller string) string {
	if cgroups.IsCgroup2UnifiedMode() {
		controller = ""
	}
	return p.base[c][controller]
}

// set changes the limits of a cgroup that is there. On v2 memory below what is used would
// have the kernel kill: that is an error instead, as on v1.
func (p *Pods) set(n name, r *cgroups.Resources) error {
	m, err := manager.New(n.config(p.systemd, r))
	if err != nil {
		return err
	}
	if cgroups.IsCgroup2UnifiedMode() && r.Memory > 0 {
		now, err := readBounds(m)
		if err != nil {
			return err
		}
		if now.usage > r.Memory {
			return fmt.Errorf("memory limit %d is below the current usage %d", r.Memory, now.usage)
		}
	}
	return m.Set(r)
}

// hold sets the limits of a cgroup that somebody else made.
func (p *Pods) hold(h Held) error {
	n := p.parse(h.Cgroup)
	m, err := manager.New(n.config(p.systemd, &cgroups.Resources{SkipDevices: true}))
	if err != nil {
		return err
	}
	if err := complete(n, m.GetPaths()); err != nil {
		return err
	}
	r := &cgroups.Resources{SkipDevices: true, Memory: h.Limits.Memory, PidsLimit: pidsLimit(h.Limits.PIDs)}
	if h.Limits.Milli > 0 {
		r.CpuShares = shares(h.Limits.Milli)
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares)
	}
	if p.c.Memory.QoS && h.Limits.Memory > 0 {
		r.Unified = map[string]string{memoryMin: strconv.FormatInt(h.Limits.Memory, 10)}
	}
	return p.set(n, r)
}

// parse reads the path of a cgroup as the driver writes it.
func (p *Pods) parse(path string) name {
	if !p.systemd {
		return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	}
	unit := strings.TrimSuffix(filepath.Base(path), ".slice")
	if unit == "-" || unit == "/" {
		return nil
	}
	n := name(strings.Split(unit, "-"))
	for i := range n {
		n[i] = strings.ReplaceAll(n[i], "_", "-")
	}
	return n
}

// complete says in a kubelet's words what a cgroup lacks.
func complete(n name, paths map[string]string) error {
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
			if slices.Contains([]string{"cpu", "cpuset", "memory", "hugetlb", "pids"}, c) && !slices.Contains(have, c) {
				missing = append(missing, c)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("cgroup %q has some missing controllers: %v", []string(n), strings.Join(missing, ", "))
		}
		return nil
	}
	for _, c := range slices.Sorted(maps.Keys(paths)) {
		if slices.Contains([]string{"cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb"}, c) && !cgroups.PathExists(paths[c]) {
			missing = append(missing, paths[c])
		}
	}
	if len(paths) == 0 {
		return errors.New("no hierarchy of cgroups is mounted")
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroup %q has some missing paths: %v", []string(n), strings.Join(missing, ", "))
	}
	return nil
}
