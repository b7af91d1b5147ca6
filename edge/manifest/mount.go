package manifest

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkMounts checks volume mounts. It permits relative mount paths, as an API server does. The runtime makes them absolute.
func (r *review) checkMounts(p *field.Path, c *v1.Container) {
	paths := map[string]bool{}
	for i, m := range c.VolumeMounts {
		at := p.Index(i)
		if r.requireText(at.Child("name"), m.Name) && r.volumes[m.Name] == nil {
			r.errs = append(r.errs, field.NotFound(at.Child("name"), m.Name))
		}
		r.requireText(at.Child("mountPath"), m.MountPath)
		r.failIf(paths[m.MountPath], at.Child("mountPath"), m.MountPath, "must be unique")
		paths[m.MountPath] = true
		for _, d := range c.VolumeDevices {
			r.failIf(d.Name == m.Name, at.Child("name"), m.Name, "must not also be in volumeDevices")
			r.failIf(d.DevicePath == m.MountPath, at.Child("mountPath"), m.MountPath, "must not also be a path of volumeDevices")
		}
		if m.SubPath != "" {
			r.checkDescending(at.Child("subPath"), m.SubPath)
		}
		if m.SubPathExpr != "" {
			r.failIf(m.SubPath != "", at.Child("subPathExpr"), m.SubPathExpr, "must not be set together with subPath")
			r.checkDescending(at.Child("subPathExpr"), m.SubPathExpr)
		}
		r.checkPropagation(at, m, c)
		r.bindOptions(at.Child("bindMountOptions"), m)
	}
}

// bindOptions checks the options of a bind mount. No option may occur twice.
func (r *review) bindOptions(p *field.Path, m v1.VolumeMount) {
	for i, o := range m.BindMountOptions {
		oneOfIf(r, p.Index(i), &o, string(v1.BindMountOptionNoDev), string(v1.BindMountOptionNoExec), string(v1.BindMountOptionNoSUID))
		if slices.Contains(m.BindMountOptions[:i], o) {
			r.errs = append(r.errs, field.Duplicate(p.Index(i), o))
		}
	}
	if v := r.volumes[m.Name]; v != nil && v.Image != nil && len(m.BindMountOptions) > 0 {
		r.addInvalid(p, m.BindMountOptions, "must not be used with image volumes")
	}
}

func (r *review) checkPropagation(p *field.Path, m v1.VolumeMount, c *v1.Container) {
	at := p.Child("mountPropagation")
	oneOfIf(r, at, m.MountPropagation, v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
	if m.MountPropagation != nil && *m.MountPropagation == v1.MountPropagationBidirectional && !isPrivileged(c) {
		r.addForbidden(at, "Bidirectional is only allowed for privileged containers")
	}
	at = p.Child("recursiveReadOnly")
	oneOfIf(r, at, m.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return
	}
	if !m.ReadOnly {
		r.addForbidden(at, "needs readOnly: true")
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		r.addForbidden(at, "needs mountPropagation None")
	}
}

// checkDevices checks volumes that are used as block devices.
func (r *review) checkDevices(p *field.Path, c *v1.Container) {
	names, paths := map[string]bool{}, map[string]bool{}
	for i, d := range c.VolumeDevices {
		at := p.Index(i)
		if r.requireText(at.Child("name"), d.Name) {
			switch v := r.volumes[d.Name]; {
			case v == nil:
				r.errs = append(r.errs, field.NotFound(at.Child("name"), d.Name))
			case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
				r.addInvalid(at.Child("name"), d.Name, "only a persistentVolumeClaim or an ephemeral volume can be a device")
			}
			r.failIf(names[d.Name], at.Child("name"), d.Name, "must be unique")
			names[d.Name] = true
		}
		if r.requireText(at.Child("devicePath"), d.DevicePath) {
			r.failIf(paths[d.DevicePath], at.Child("devicePath"), d.DevicePath, "must be unique")
			r.rejectBacksteps(at.Child("devicePath"), d.DevicePath)
			paths[d.DevicePath] = true
		}
	}
}

// rejectBacksteps rejects a path with the element "..".
func (r *review) rejectBacksteps(p *field.Path, name string) {
	r.failIf(slices.Contains(strings.Split(name, "/"), ".."), p, name, "must not contain '..'")
}

// checkDescending rejects a path that can lead out of its base directory.
func (r *review) checkDescending(p *field.Path, name string) {
	r.failIf(path.IsAbs(name), p, name, "must be a relative path")
	r.rejectBacksteps(p, name)
}

// checkVisible checks the path of a file in a volume that is updated atomically. The path must pass checkDescending and must not start
// with two dots, because the internal directories of such volumes start with two dots.
func (r *review) checkVisible(p *field.Path, name string) {
	r.checkDescending(p, name)
	r.failIf(strings.HasPrefix(name, "..") && !strings.HasPrefix(name, "../"), p, name, "must not start with '..'")
}
