package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// fixImages replaces each image name of a bundle's pod with a reference with the digest, and returns these references. Therefore an import,
// a pull or a moved tag does not change the images of the pod. A pull policy of Always becomes IfNotPresent, because the content of a
// digest cannot change. fixImages changes no pod of another source.
func fixImages(spec *v1.PodSpec, o Options) (refs []string, err error) {
	if o.Source != keys.SourceBundle {
		return nil, nil
	}
	fix := func(ref string, policy v1.PullPolicy) (string, v1.PullPolicy) {
		fixed, found := o.Images[podspec.FullImage(ref)]
		if !found && err == nil {
			err = fmt.Errorf("the bundle has no image %q", sanitize(ref))
		}
		refs = append(refs, fixed)
		if policy == v1.PullAlways {
			policy = v1.PullIfNotPresent
		}
		return fixed, policy
	}
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			list[i].Image, list[i].ImagePullPolicy = fix(list[i].Image, list[i].ImagePullPolicy)
		}
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			v.Reference, v.PullPolicy = fix(v.Reference, v.PullPolicy)
		}
	}
	return refs, err
}
