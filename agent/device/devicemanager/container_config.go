package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of an allocation.
const (
	maxEntries    = 1 << 10 // entries of one kind
	maxText       = 1 << 16 // bytes of one name, path or value
	maxAllocation = 1 << 18 // bytes of all names, paths and values
)

// Container adds the allocations to a container's configuration. It does not replace
// environment variables and paths that the configuration already has.
func (m *Manager) Container(_ context.Context, pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	all := m.rowsOf(pod.UID, ctr.Name)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a := all[name].Allocation
		a.applyTo(out)
	}
	return nil
}

func (a *Allocation) applyTo(out *api.ContainerConfig) {
	for _, k := range slices.Sorted(maps.Keys(a.Env)) {
		if !slices.ContainsFunc(out.Envs, func(e *api.KeyValue) bool { return e.Key == k }) {
			out.Envs = append(out.Envs, &api.KeyValue{Key: k, Value: []byte(a.Env[k])})
		}
	}
	for _, v := range a.Mounts {
		if !slices.ContainsFunc(out.Mounts, func(x *api.Mount) bool { return x.ContainerPath == v.Container }) {
			out.Mounts = append(out.Mounts, &api.Mount{HostPath: v.Host, ContainerPath: v.Container, Readonly: v.ReadOnly})
		}
	}
	for _, n := range a.Nodes {
		if !slices.ContainsFunc(out.Devices, func(x *api.Device) bool { return x.ContainerPath == n.Container }) {
			out.Devices = append(out.Devices, &api.Device{HostPath: n.Host, ContainerPath: n.Container, Permissions: n.Permissions})
		}
	}
	for k, v := range a.Annotations {
		if _, there := out.Annotations[k]; !there { // does not replace the agent's annotations
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[k] = v
		}
	}
	AddCDI(out, a.CDI)
	if sec := out.GetLinux().GetSecurityContext(); sec != nil {
		for _, g := range a.Groups {
			if !slices.Contains(sec.SupplementalGroups, g) {
				sec.SupplementalGroups = append(sec.SupplementalGroups, g)
			}
		}
	}
}

// AddCDI adds CDI devices to a container's configuration, without duplicates.
func AddCDI(out *api.ContainerConfig, names []string) {
	for _, n := range names {
		if !slices.ContainsFunc(out.CDIDevices, func(d *api.CDIDevice) bool { return d.Name == n }) {
			out.CDIDevices = append(out.CDIDevices, &api.CDIDevice{Name: n})
		}
	}
}

// check returns an error for an allocation that is invalid or exceeds the limits.
func (a *Allocation) check() error {
	for kind, n := range map[string]int{
		"variables": len(a.Env), "mounts": len(a.Mounts), "device nodes": len(a.Nodes),
		"annotations": len(a.Annotations), "CDI devices": len(a.CDI), "groups": len(a.Groups),
	} {
		if n > maxEntries {
			return fmt.Errorf("the provider of a device returned %d %s, but the maximum is %d", n, kind, maxEntries)
		}
	}
	texts := slices.Clone(a.CDI)
	for _, m := range []map[string]string{a.Env, a.Annotations} {
		for k, v := range m {
			if k == "" || strings.ContainsAny(k, "=\x00") {
				return fmt.Errorf("the provider of a device returned a variable or annotation with the invalid name %.80q", k)
			}
			texts = append(texts, k, v)
		}
	}
	var paths []string
	for _, v := range a.Mounts {
		paths = append(paths, v.Host, v.Container)
	}
	for _, n := range a.Nodes {
		if n.Permissions == "" || strings.Trim(n.Permissions, "rwm") != "" || len(n.Permissions) > 3 {
			return fmt.Errorf("the provider of device node %.80q returned the permissions %.80q: only r, w and m are valid",
				n.Host, n.Permissions)
		}
		paths = append(paths, n.Host, n.Container)
	}
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("the provider of a device returned the path %.80q, which is not absolute", p)
		}
	}
	sum := 0
	for _, t := range append(texts, paths...) {
		if sum += len(t); sum > maxAllocation {
			return fmt.Errorf("the provider of a device returned names, paths and values of more than %d bytes", maxAllocation)
		}
		if len(t) > maxText || strings.Contains(t, "\x00") {
			return errors.New("the provider of a device returned a name, path or value that is too long or contains a zero byte")
		}
	}
	return nil
}
