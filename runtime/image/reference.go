package image

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// normalize makes a full reference of what a person writes: docker.io and
// library are filled in, a missing tag becomes latest, and a digest wins over a
// tag beside it.
func normalize(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	return named, nil
}

// nameFromArchive is the full reference that an archive gives an image, or ""
// when its annotation is only a tag ("1.2"), which names no image.
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

// withDigest is the name under which an image of named's repository is kept
// when its tag has moved on.
func withDigest(named reference.Named, d digest.Digest) string {
	return reference.TrimNamed(named).String() + "@" + d.String()
}

// idPrefix says whether ref may be a shortened image ID.
func idPrefix(ref string) bool {
	return len(ref) >= 6 && len(ref) <= 64 && strings.Trim(ref, "0123456789abcdef") == ""
}
