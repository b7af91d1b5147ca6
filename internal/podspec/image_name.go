package podspec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// CheckImage returns an error if an image reference is not valid. A container with such an image cannot start (InvalidImageName).
func CheckImage(ref string) error {
	_, err := reference.ParseNormalizedNamed(ref)
	switch {
	case err == nil:
		return nil
	case strings.Contains(ref, "://"):
		return errors.New("has a scheme: leave out everything up to ://")
	case errors.Is(err, reference.ErrNameContainsUppercase), ref != strings.ToLower(ref) && validLower(ref):
		return errors.New("has upper case letters: a repository has only lower case letters")
	case strings.ContainsAny(ref, " \t\n"):
		return errors.New("contains white space")
	}
	return err
}

func validLower(ref string) bool {
	_, err := reference.ParseNormalizedNamed(strings.ToLower(ref))
	return err == nil
}

// CheckComplete returns an error unless a reference has a registry and a repository, and a tag or a digest. A bundle in a registry needs a
// complete reference, because bundles have no default registry.
func CheckComplete(ref string) error {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil || reference.IsNameOnly(named) || !strings.HasPrefix(ref, reference.Domain(named)+"/") {
		return fmt.Errorf("%.300q is not a complete reference such as registry.example.com/kiosk:42", ref)
	}
	return nil
}

// IsLatest reports whether an image reference resolves to the tag latest. This is the case if the reference has this tag, or if it has
// neither a tag nor a digest.
func IsLatest(ref string) bool {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return false
	}
	if _, ok := named.(reference.Digested); ok {
		return false
	}
	tagged, ok := reference.TagNameOnly(named).(reference.Tagged)
	return ok && tagged.Tag() == "latest"
}
