package doctor

import (
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// checkLeftovers reports namespaces, interfaces, mounts and cgroups that belong to no pod. If the agent does not return its
// sandboxes, it calls leftoversWithoutAgent instead.
func (p *checkup) checkLeftovers(ctx context.Context) {
	pods := filepath.Join(p.RootDir, "pods")
	var volumes, pins []string
	for _, m := range p.table {
		switch {
		case isBelow(m.dir, pods):
			volumes = append(volumes, m.dir)
		case isBelow(m.dir, filepath.Join(p.RunDir, "ns")):
			pins = append(pins, m.dir)
		}
	}
	// Pods start and end during the check. So only an object that existed before the agent's sandboxes were
	// listed, and that still exists afterwards, is a leftover.
	bridge, spaces := "sys/class/net/"+p.Bridge+"/brif", filepath.Join(p.RunDir, "ns")
	ports, stray := p.entries(bridge), p.entries(spaces)
	live, ok := p.liveSandboxes(ctx)
	if !ok {
		p.leftoversWithoutAgent(volumes, pins)
		return
	}
	still := p.entries(spaces)
	stray = slices.DeleteFunc(stray, func(id string) bool { return slices.Contains(live, id) || !slices.Contains(still, id) })
	if after := p.entries(bridge); len(after) < len(ports) {
		ports = after
	}
	if len(stray) > 0 {
		p.add("leftover-pins", Warning, "restart islet, which removes them; if they stay, report it",
			"%d pinned namespaces belong to no pod, such as %s", len(stray), stray[0])
	}
	if len(ports) > len(live) {
		p.add("leftover-veths", Warning, "restart islet, which removes them; if they stay, report it",
			"%s has %d interfaces for %d pods", p.Bridge, len(ports), len(live))
	}
	if len(stray) == 0 && len(ports) <= len(live) {
		p.add("leftovers", OK, "", "there are no leftovers of removed pods")
	}
}

// liveSandboxes returns the IDs of the agent's sandboxes. It returns false if the sandboxes are not
// known.
func (p *checkup) liveSandboxes(ctx context.Context) ([]string, bool) {
	if p.Sandboxes == nil {
		return nil, false
	}
	return p.Sandboxes(ctx)
}

// leftoversWithoutAgent reports mounts, pinned namespaces and cgroups that may be leftovers.
func (p *checkup) leftoversWithoutAgent(volumes, pins []string) {
	if p.agentRuns {
		p.add("leftovers", OK, "", "islet is running, and cleans up after its pods")
		return
	}
	if len(pins)+len(volumes) == 0 && len(p.podCgroups()) == 0 {
		p.add("leftovers", OK, "", "there are no leftovers of pods")
		return
	}
	if len(pins) > 0 {
		p.add("leftover-pins", Info, "start islet: it adopts the pods, or removes their leftovers",
			"%d namespaces are pinned below %s: they belong to pods that run without an agent, or are leftovers", len(pins), p.RunDir)
	}
	if len(volumes) > 0 {
		p.add("leftover-volumes", Info, "start islet; if they belong to another kubelet, unmount them: umount "+volumes[0],
			"%d volumes are mounted below %s", len(volumes), p.RootDir)
	}
	if groups := p.podCgroups(); len(groups) > 0 {
		if busy := slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return !p.hasProcesses(g) }); len(busy) > 0 {
			p.add("leftover-cgroups", Warning, "start islet, if the pods are its own; else "+endContainers,
				"processes run in %d cgroups of pods, such as %s, and no kubelet manages them", len(busy), busy[0])
			return
		}
		p.add("leftover-cgroups", Info, "start islet; if they belong to another kubelet, it removes them with its pods",
			"%d cgroups of pods exist, such as %s", len(groups), groups[0])
	}
}

func (p *checkup) entries(dir string) []string {
	list, err := fs.ReadDir(p.Host, inHost(dir))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// podCgroups returns the cgroups of pods. If there are several hierarchies, it returns the cgroups in
// the hierarchy of one controller.
func (p *checkup) podCgroups() []string {
	var found []string
	for _, root := range []string{"sys/fs/cgroup", "sys/fs/cgroup/memory"} {
		for _, parent := range []string{"kubepods", "kubepods.slice"} {
			for _, pattern := range []string{"*pod*", "*/*pod*"} {
				dirs, err := fs.Glob(p.Host, path.Join(root, parent, pattern))
				if err != nil {
					continue
				}
				for _, d := range dirs {
					if p.exists(path.Join(d, "cgroup.procs")) && strings.Contains(path.Base(d), "pod") &&
						!strings.HasPrefix(path.Base(d), "kubepods-besteffort.slice") {
						found = append(found, "/"+d)
					}
				}
			}
		}
	}
	return found
}

// hasProcesses reports whether a pod's cgroup, or one of its containers' cgroups, contains a process.
func (p *checkup) hasProcesses(group string) bool {
	if p.readText(path.Join(group, "cgroup.procs")) != "" {
		return true
	}
	return slices.ContainsFunc(p.entries(group), func(name string) bool { return p.readText(path.Join(group, name, "cgroup.procs")) != "" })
}
