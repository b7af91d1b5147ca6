package podspec

import (
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "k8s.io/api/core/v1"
)

// Images are the images that a pod names: those of its containers, of every kind, and those
// that it mounts (KEP-4639).
func Images(spec *v1.PodSpec) (refs []string) {
	add := func(ref string) {
		if ref != "" {
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

// FullImage is an image's reference with its registry and tag, as runtimes list it; of one
// with a tag and a digest, the digest counts. What is no reference stays as it is.
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
