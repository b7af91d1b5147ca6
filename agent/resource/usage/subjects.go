package usage

import (
	"context"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/exposition"
	"github.com/islet-edge/islet/metrics/sample"
)

// Subjects returns the figures for /metrics/cadvisor: the figures of each cgroup, with the pod or container to which it
// belongs.
func (u *Usage) Subjects(ctx context.Context) ([]exposition.Subject, error) {
	j, err := u.joinFigures(ctx, true)
	if err != nil {
		return nil, err
	}
	var out []exposition.Subject
	if j.sample != nil {
		out = make([]exposition.Subject, 0, len(j.sample.Groups))
		for i := range j.sample.Groups {
			if s, ok := u.subjectOf(ctx, j, &j.sample.Groups[i]); ok {
				out = append(out, s)
			}
		}
	}
	fs := map[string]exposition.Disk{}
	for i := range out {
		if c := j.byID[out[i].Name]; c != nil {
			u.addLayer(ctx, fs, c, &out[i])
		}
	}
	for _, p := range j.pods { // containers without a visible cgroup
		for _, c := range p.containers {
			if c.group == nil && c.reported != nil {
				s := exposition.Subject{Group: reportedGroup(c), ID: c.id}
				setNames(&s, c)
				u.addLayer(ctx, fs, c, &s)
				out = append(out, s)
			}
		}
	}
	return out, nil
}

func (u *Usage) subjectOf(ctx context.Context, j *joinedFigures, g *sample.Group) (exposition.Subject, bool) {
	s := exposition.Subject{Group: g}
	switch g.Kind {
	case sample.Root:
		s.Devices = disk.Devices("/proc")
		if u.c.Host != nil {
			s.Disks = u.fileSystems(ctx)
			if id, err := u.c.Host.Identity(ctx); err == nil {
				s.Started = id.BootTime
			}
		}
	case sample.Pod:
		p := j.byUID[g.Pod]
		if p == nil {
			return s, false // the pod has ended
		}
		s.Pod, s.Namespace, s.Sandbox = p.name, p.namespace, p.sandbox // the sandbox has no cgroup of its own, but it owns the network
	case sample.Container:
		c := j.byID[g.Container]
		if c == nil {
			return s, false
		}
		setNames(&s, c)
	}
	return s, true
}

func setNames(s *exposition.Subject, c *container) {
	s.Container, s.Pod, s.Namespace, s.Image, s.Name, s.Started = c.name, c.pod, c.namespace, c.image, c.id, c.started
}

// fileSystems returns the file systems of the node.
func (u *Usage) fileSystems(ctx context.Context) (out []exposition.Disk) {
	seen := map[string]bool{}
	for _, dir := range []string{"/", u.c.Root, u.c.LogsDir} {
		number, err := disk.DeviceNumber(dir)
		if dir == "" || err != nil || seen[number] {
			continue
		}
		seen[number] = true
		if d, err := u.c.Host.Disk(ctx, dir); err == nil {
			out = append(out, exposition.Disk{
				Device: disk.DeviceFile("/sys", number), Used: d.Used, Limit: d.Total, Inodes: d.Inodes,
				InodesFree: d.InodesFree,
			})
		}
	}
	return out
}

// addLayer adds the figures of a container's writable layer.
func (u *Usage) addLayer(ctx context.Context, known map[string]exposition.Disk, c *container, s *exposition.Subject) {
	fs := c.layer
	if fs == nil {
		return
	}
	at := fs.GetFsId().GetMountpoint()
	d, ok := known[at]
	if !ok {
		if number, err := disk.DeviceNumber(filepath.Clean(at)); err == nil {
			d.Device = disk.DeviceFile("/sys", number)
		}
		if u.c.Host != nil {
			if h, err := u.c.Host.Disk(ctx, at); err == nil {
				d.Limit, d.Inodes, d.InodesFree = h.Total, h.Inodes, h.InodesFree
			}
		}
		known[at] = d
	}
	d.Used = fs.UsedBytes.GetValue()
	s.Disks = []exposition.Disk{d}
}

// reportedGroup converts the figures that the runtime reports for a container to the figures of a cgroup.
func reportedGroup(c *container) *sample.Group {
	g := &sample.Group{
		Kind: sample.Container, Pod: c.uid, Container: c.id, NanoCores: c.nanoCores,
		Reading: cgroup.Reading{Details: &cgroup.Details{}},
	}
	cpu, mem := c.reported.GetCpu(), c.reported.GetMemory()
	g.At = time.Unix(0, cpu.GetTimestamp())
	g.CPU = time.Duration(cpu.GetUsageCoreNanoSeconds().GetValue())
	g.Memory, g.WorkingSet, g.RSS = mem.GetUsageBytes().GetValue(), mem.GetWorkingSetBytes().GetValue(), mem.GetRssBytes().GetValue()
	g.PageFaults, g.MajorFault = mem.GetPageFaults().GetValue(), mem.GetMajorPageFaults().GetValue()
	g.Swap = c.reported.GetSwap().GetSwapUsageBytes().GetValue()
	return g
}
