package hardware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/internal/config"
)

// A provider implements devicemanager.Provider for one class.
type provider struct {
	h     *Hardware
	class int
}

// Allocate implements devicemanager.Provider.
func (p *provider) Allocate(_ context.Context, r devicemanager.Request) (devicemanager.Allocation, error) {
	a, _, err := p.buildAllocation(r)
	return a, err
}

// Start implements devicemanager.Starter. It is needed because the device may have a new node.
func (p *provider) Start(ctx context.Context, r devicemanager.Request) (*devicemanager.Allocation, error) {
	a, create, err := p.buildAllocation(r)
	if err != nil {
		return nil, err
	}
	if err := p.h.createNodes(create); err != nil {
		return nil, err
	}
	held := map[holder]bool{}
	for _, one := range p.h.c.Manager.Holdings() {
		held[holder{one.UID, one.Container, one.Resource}] = true
	}
	units, err := p.findUnits(r.IDs)
	if err != nil {
		return nil, err
	}
	return &a, p.h.history.recordStart(ctx, p.holderOf(r), units, held)
}

// PreferredDevices implements devicemanager.Preferrer. It prefers different units. Among shared units, it prefers the
// units with the fewest users.
func (p *provider) PreferredDevices(_ context.Context, c devicemanager.Choice) ([]string, error) {
	free, has := map[string]int{}, map[string]bool{}
	for _, slot := range c.Available {
		free[unitOf(slot)]++
	}
	out := slices.Clone(c.Must)
	for _, slot := range out {
		has[unitOf(slot)] = true
	}
	for len(out) < c.Count {
		best := ""
		for _, slot := range c.Available {
			if slices.Contains(out, slot) {
				continue
			}
			if best == "" || preferSlot(unitOf(slot), unitOf(best), has, free) {
				best = slot
			}
		}
		if best == "" {
			break
		}
		has[unitOf(best)] = true
		free[unitOf(best)]--
		out = append(out, best)
	}
	return out, nil
}

// preferSlot reports whether unit a is preferred to unit b.
func preferSlot(a, b string, has map[string]bool, free map[string]int) bool {
	if has[a] != has[b] {
		return has[b]
	}
	return cmp.Or(cmp.Compare(free[b], free[a]), compareNatural(a, b)) < 0
}

func (p *provider) holderOf(r devicemanager.Request) holder {
	return holder{r.Pod.UID, r.Container.Name, p.h.c.Classes[p.class].Resource}
}

// findUnits returns the units of the given slots, without duplicates, sorted by ID.
func (p *provider) findUnits(slots []string) (out []*unit, err error) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	for _, slot := range slots {
		id := unitOf(slot)
		i := slices.IndexFunc(p.h.foundUnits[p.class], func(u *unit) bool { return u.id == id })
		if i < 0 {
			return nil, fmt.Errorf("device %s: %s", id, notPluggedIn)
		}
		if u := p.h.foundUnits[p.class][i]; !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b *unit) int { return compareNatural(a.id, b.id) })
	return out, nil
}

// buildAllocation returns the allocation for a container, and the device nodes that must be created before the container
// starts.
func (p *provider) buildAllocation(r devicemanager.Request) (a devicemanager.Allocation, create []ownNode, err error) {
	class, h := &p.h.c.Classes[p.class], p.h.host
	units, err := p.findUnits(r.IDs)
	if err != nil {
		return a, nil, err
	}
	dir, err := p.h.deviceNodeDir(p.holderOf(r))
	if err != nil {
		return a, nil, err
	}
	group, err := h.groupID(class)
	if err != nil {
		return a, nil, err
	}
	userNamespace := r.Pod.Spec.HostUsers != nil && !*r.Pod.Spec.HostUsers
	for i, n := range allNodes(units) {
		var st unix.Stat_t
		if err := unix.Lstat(h.absolutePath(n.path), &st); err != nil {
			return a, nil, fmt.Errorf("device %s: %w", n.path, err)
		}
		out := devicemanager.Node{Host: h.absolutePath(n.path), Container: n.path, Permissions: cmp.Or(class.Permissions, "rw")}
		if class.ContainerPath != "" {
			out.Container = numberedPath(class.ContainerPath, i)
		}
		switch groupBits := uint32(st.Mode) >> 3; {
		case userNamespace && out.Container != n.path:
			return a, nil, fmt.Errorf("device %s cannot have another path in a pod with hostUsers: false: "+
				"remove containerPath of %s from the configuration of the node", n.path, class.Resource)
		case group < 0 && st.Gid != 0 && groupBits&6 != 0:
			a.Groups = append(a.Groups, int64(st.Gid))
		case group >= 0:
			a.Groups = append(a.Groups, group)
			if int64(st.Gid) != group || groupBits&6 != 6 {
				own := ownNode{filepath.Join(dir, strconv.Itoa(i)), n.number, int(group)}
				create, out.Host = append(create, own), own.path
			}
		}
		a.Nodes = append(a.Nodes, out)
	}
	slices.Sort(a.Groups)
	a.Groups = slices.Compact(a.Groups)
	return a, create, nil
}

func allNodes(units []*unit) (out []*node) {
	for _, u := range units {
		out = append(out, u.nodes...)
	}
	return out
}

// groupID returns the ID of a class's group, or -1 if the class sets no group.
func (h host) groupID(c *config.DeviceClass) (int64, error) {
	if c.Group == nil {
		return -1, nil
	}
	if c.Group.Type == intstr.Int {
		return int64(c.Group.IntVal), nil
	}
	name := c.Group.StrVal
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		return n, nil
	}
	table, err := os.ReadFile(h.absolutePath("/etc/group"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= 3 && f[0] == name {
			if n, err := strconv.ParseUint(f[2], 10, 32); err == nil {
				return int64(n), nil
			}
		}
	}
	return 0, fmt.Errorf("the host has no group %s, which the configuration of the node sets for %s", name, c.Resource)
}

// An ownNode is a device node that the agent creates for a container, because the host's node has another group. The
// runtime copies its owner and mode to the container's node.
type ownNode struct {
	path string
	number
	group int
}

func (h *Hardware) createNodes(list []ownNode) error {
	h.nodes.Lock()
	defer h.nodes.Unlock()
	for _, n := range list {
		if err := n.createNode(); err != nil {
			return err
		}
	}
	return nil
}

// createNode creates the node. It replaces an existing node.
func (n ownNode) createNode() error {
	if err := os.MkdirAll(filepath.Dir(n.path), 0o700); err != nil {
		return err
	}
	if err := os.Remove(n.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	kind := uint32(unix.S_IFCHR)
	if n.block {
		kind = unix.S_IFBLK
	}
	if err := unix.Mknod(n.path, kind|0o660, int(unix.Mkdev(n.major, n.minor))); err != nil {
		return fmt.Errorf("create device node %s: %w", n.path, err)
	}
	if err := os.Chown(n.path, 0, n.group); err != nil {
		return err
	}
	return os.Chmod(n.path, 0o660)
}
