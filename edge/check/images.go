package check

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/podspec"
)

// eachContainer calls visit for the init containers and then for the containers.
func (p *pod) eachContainer(visit func(*field.Path, *v1.Container)) {
	spec := field.NewPath("spec")
	for i := range p.Spec.InitContainers {
		visit(spec.Child("initContainers").Index(i), &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		visit(spec.Child("containers").Index(i), &p.Spec.Containers[i])
	}
}

// images checks the images of the containers and of the volumes.
func (p *pod) images() {
	p.eachContainer(func(at *field.Path, c *v1.Container) {
		p.image(at.Child("image").String(), c.Image, c.ImagePullPolicy)
	})
	for i, v := range p.Spec.Volumes {
		if v.Image != nil && v.Image.Reference != "" {
			p.image(field.NewPath("spec", "volumes").Index(i).Child("image", "reference").String(), v.Image.Reference, v.Image.PullPolicy)
		}
	}
}

func (p *pod) image(at, ref string, policy v1.PullPolicy) {
	if err := podspec.CheckImage(ref); err != nil {
		hint := ""
		if manifest.IsTemplate(ref) {
			hint = ": this looks like a template that was not filled in"
		}
		p.errorf(at, "%q is not an image: %v%s; the container cannot start (InvalidImageName)", ref, err, hint)
		return
	}
	there := p.node != nil && p.hasImage(ref)
	switch {
	case policy == v1.PullAlways && podspec.IsLatest(ref):
		p.warnf(at, "%q may be another image at each start of the container: give it a version as its tag", ref)
	case policy == v1.PullNever && !there:
		p.warnf(at, "%q is never pulled: import it before, with 'islet images import'", ref)
	}
	if p.node != nil && !there && policy != v1.PullNever {
		hint := ""
		if strings.HasPrefix(ref, "localhost/") {
			hint = ", which fails unless a registry runs here: import it with 'islet images import'"
		}
		p.warnf(at, "%q is not on this node: it is pulled when the pod starts%s", ref, hint)
	}
}

// hasImage reports whether an image is on the node.
func (p *pod) hasImage(ref string) bool {
	full := podspec.FullImage(ref)
	for _, i := range p.node.Images {
		if i.ID == ref || slices.Contains(i.Tags, full) || slices.Contains(i.Digests, full) {
			return true
		}
	}
	return false
}
