package ctrd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// cdiDirs returns the directories of CDI specifications. As in every runtime, a later directory
// takes precedence. https://github.com/cncf-tags/container-device-interface
func cdiDirs() []string { return []string{cdi.DefaultStaticDir, cdi.DefaultDynamicDir} }

// injectCDI adds the container's CDI devices to spec. The configuration lists the devices in CDIDevices. Older clients list them in
// annotations. injectCDI reads the CDI specifications on each call, so changed specifications take effect without a restart.
func (r *Runtime) injectCDI(spec *specs.Spec, cfg *api.ContainerConfig) error {
	var names []string
	for _, d := range cfg.GetCDIDevices() {
		names = append(names, d.GetName())
	}
	_, annotated, err := cdi.ParseAnnotations(cfg.GetAnnotations())
	if err != nil {
		return fmt.Errorf("parse the CDI device annotations: %w", err)
	}
	for _, n := range annotated {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(r.c.CDIDirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("read the CDI specifications: %w", err)
	}
	if _, err := cache.InjectDevices(spec, names...); err != nil {
		err = fmt.Errorf("CDI device injection failed: %w", err) // containerd's wording
		// The injection may have failed because the file that defines the device cannot be read.
		for path, wrong := range cache.GetErrors() {
			err = fmt.Errorf("%w; %s: %w", err, path, errors.Join(wrong...))
		}
		return err
	}
	if slices.ContainsFunc(spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.UserNamespace }) {
		bindDevices(spec, cache, names)
	}
	return nil
}

// bindDevices replaces the CDI device nodes of a container with bind mounts of the host's device nodes. It is for containers in a user
// namespace, where no process can create device nodes. An OCI runtime creates such a bind mount itself only if the node has the same path
// on the host and in the container.
func bindDevices(spec *specs.Spec, cache *cdi.Cache, names []string) {
	hosts := map[string]string{} // host path by container path
	for _, n := range names {
		d := cache.GetDevice(n)
		if d == nil {
			continue
		}
		for _, node := range slices.Concat(d.GetSpec().ContainerEdits.DeviceNodes, d.ContainerEdits.DeviceNodes) {
			hosts[node.Path] = cmp.Or(node.HostPath, node.Path)
		}
	}
	spec.Linux.Devices = slices.DeleteFunc(spec.Linux.Devices, func(d specs.LinuxDevice) bool {
		host, named := hosts[d.Path]
		if named {
			spec.Mounts = append(spec.Mounts, specs.Mount{
				Destination: d.Path, Type: "bind", Source: host, Options: []string{"rbind", "rprivate"},
			})
		}
		return named
	})
}
