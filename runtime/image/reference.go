package image

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// normalize parses a reference as users write it: it fills in docker.io and library, and latest if
// there is no tag. If there is a digest, the tag is dropped.
func normalize(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	return named, nil
}

// nameFromArchive returns the full reference in an archive's annotation, or "" if it is only a tag
// ("1.2").
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

// withDigest returns the name of an image in named's repository by digest, used when its tag has
// moved.
func withDigest(named reference.Named, d digest.Digest) string {
	return reference.TrimNamed(named).String() + "@" + d.String()
}

// idPrefix reports whether ref may be a shortened image ID.
func idPrefix(ref string) bool {
	return len(ref) >= 6 && len(ref) <= 64 && strings.Trim(ref, "0123456789abcdef") == ""
}
