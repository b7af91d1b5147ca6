package usage

import (
	"context"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/sample"
)

// IO returns the bytes that pods and containers have read from and written to disks. It omits containers without a
// visible cgroup. It returns nil if the kernel does not count I/O by cgroup.
func (u *Usage) IO(ctx context.Context) (out []api.DiskIO, err error) {
	j, err := u.joinFigures(ctx, false)
	if err != nil {
		return nil, err
	}
	counts := map[string]bool{} // whether the device counts all its I/O
	known := false
	add := func(uid, container string, g *sample.Group) {
		if g == nil {
			return
		}
		io := api.DiskIO{UID: uid, Container: container, At: g.At}
		for _, d := range g.IO {
			count, asked := counts[d.Device]
			if !asked {
				count = disk.IsPhysical("/sys", d.Device)
				counts[d.Device] = count
			}
			known = true
			if count {
				io.Read, io.Written = io.Read+d.ReadBytes, io.Written+d.WriteBytes
			}
		}
		out = append(out, io)
	}
	for _, p := range j.pods {
		add(p.uid, "", p.group)
		for _, c := range p.containers {
			add(p.uid, c.name, c.group)
		}
	}
	if !known {
		return nil, nil
	}
	return out, nil
}
