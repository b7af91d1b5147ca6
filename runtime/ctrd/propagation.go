package ctrd

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// checkPropagation rejects a mount whose propagation would have no effect, because its host path is
// in a mount without peers. Bidirectional needs a shared mount. HostToContainer needs a shared or a
// slave mount. https://kubernetes.io/docs/concepts/storage/volumes/#mount-propagation
func checkPropagation(all []*api.Mount) error {
	for _, m := range all {
		var need []string
		switch m.GetPropagation() {
		case api.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			need = []string{"shared"}
		case api.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
			need = []string{"shared", "master"}
		default:
			continue
		}
		source, err := withoutLinks(m.GetHostPath())
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.GetContainerPath(), err)
		}
		parent, err := mounts.MountOf(source)
		if err != nil {
			return fmt.Errorf("mount %s: look up the mount of %s: %w", m.GetContainerPath(), source, err)
		}
		if parent != nil && !hasTag(parent.Optional, need) {
			return fmt.Errorf("mount %s asks for %s, but %s is in the mount %s of the host, which is not %s: "+
				"make it shared (mount --make-rshared %s), at each boot before pods start: %w",
				m.GetContainerPath(), propagationNames[m.GetPropagation()], source, parent.Mountpoint,
				strings.Replace(strings.Join(need, " or "), "master", "slave", 1), parent.Mountpoint, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

var propagationNames = map[api.MountPropagation]string{
	api.MountPropagation_PROPAGATION_BIDIRECTIONAL:     "Bidirectional",
	api.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: "HostToContainer",
}

// hasTag reports whether one of these tags is in the optional fields of a line of mountinfo.
func hasTag(optional string, tags []string) bool {
	for f := range strings.FieldsSeq(optional) {
		name, _, _ := strings.Cut(f, ":")
		for _, tag := range tags {
			if name == tag {
				return true
			}
		}
	}
	return false
}
