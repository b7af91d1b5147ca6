package image

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// normalizeName parses a reference as users write it. It adds docker.io and library if they are
// missing, and the tag latest if there is no tag. If the reference contains a digest, it drops the
// tag.
func normalizeName(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	return named, nil
}

// nameFromArchive returns the full reference in an archive's annotation. It returns "" if the
// annotation is only a tag, such as "1.2".
func nameFromArchive(annotation string) string {
	if !strings.ContainsAny(annotation, "/:@") {
		return ""
	}
	named, err := reference.ParseDockerRef(annotation)
	if err != nil {
		return ""
	}
	return named.String()
}

// withDigest returns a reference by digest, in the same repository as the given reference. It is
// used when the tag of the image has moved.
func withDigest(named reference.Named, d digest.Digest) string {
	return reference.TrimNamed(named).String() + "@" + d.String()
}

// idPrefix reports whether ref may be a prefix of an image ID.
func idPrefix(ref string) bool {
	return len(ref) >= 6 && len(ref) <= 64 && strings.Trim(ref, "0123456789abcdef") == ""
}
