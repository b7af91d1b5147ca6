package check

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/edge/manifest"
)

// templates reports values that look like a template that was not filled in. It skips commands, arguments, values of variables, and
// annotations, because a template in these fields may be meant for the program in the container. It also skips images and names, because
// other rules report templates in them.
func (p *pod) templates() {
	spec := field.NewPath("spec")
	check := func(at fmt.Stringer, value string) {
		if manifest.IsTemplate(value) {
			p.warnf(at.String(), "%q looks like a template that was not filled in", value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		check(spec.Child("nodeSelector").Key(key), p.Spec.NodeSelector[key])
	}
	p.eachContainer(func(at *field.Path, c *v1.Container) {
		check(at.Child("workingDir"), c.WorkingDir)
		for i, m := range c.VolumeMounts {
			check(at.Child("volumeMounts").Index(i).Child("mountPath"), m.MountPath)
			check(at.Child("volumeMounts").Index(i).Child("subPath"), m.SubPath)
		}
	})
	for i, v := range p.Spec.Volumes {
		at := spec.Child("volumes").Index(i)
		switch {
		case v.HostPath != nil:
			check(at.Child("hostPath", "path"), v.HostPath.Path)
		case v.NFS != nil:
			check(at.Child("nfs", "server"), v.NFS.Server)
			check(at.Child("nfs", "path"), v.NFS.Path)
		}
	}
}
