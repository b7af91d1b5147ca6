package podspec

import (
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "k8s.io/api/core/v1"
)

// Images returns the image references of all containers and all image volumes (KEP-4639) of a pod. It omits invalid
// references, because they name no image, and a runtime answers a request for such an image with an error.
func Images(spec *v1.PodSpec) (refs []string) {
	add := func(ref string) {
		if CheckImage(ref) == nil {
			refs = append(refs, ref)
		}
	}
	for _, c := range Containers(spec) {
		add(c.Image)
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			add(v.Reference)
		}
	}
	return refs
}

// FullImage returns an image reference with its registry and tag, the form in which runtimes list
// images. If a reference has both a tag and a digest, the tag is removed. An invalid reference is
// returned unchanged.
func FullImage(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if _, id := digest.Parse(ref); err != nil || id == nil {
		return ref
	}
	if full := reference.TagNameOnly(named).String(); !strings.Contains(full, "@") {
		return full
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return ref
	}
	return reference.TrimNamed(named).Name() + "@" + digested.Digest().String()
}
