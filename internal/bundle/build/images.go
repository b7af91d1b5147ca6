package build

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
)

// platformImages is an image with its manifests by platform.
type platformImages struct {
	layout bundle.Layout
	target ocispec.Descriptor
	images map[string]*bundle.PlatformImage

	only []string // in an index of a registry, only manifests for these platforms are read; nil means all platforms
}

const (
	maxNesting   = 3   // indexes in indexes
	maxInIndexes = 500 // manifests that are read to find the platforms of one image
)

// findPlatforms reads the manifests of a candidate. If only is not nil, it reads only the manifests for these platforms, because every
// manifest needs a request to a registry.
func findPlatforms(l bundle.Layout, target ocispec.Descriptor, only []string) (*platformImages, error) {
	p := &platformImages{l, target, map[string]*bundle.PlatformImage{}, only}
	left := maxInIndexes
	return p, p.add(target, maxNesting, &left)
}

// add reads the manifests that a descriptor reaches. Its digest must be valid.
func (p *platformImages) add(d ocispec.Descriptor, nesting int, left *int) error {
	if *left--; *left < 0 || nesting < 0 {
		return fmt.Errorf("it has more than %d manifests, or more than %d indexes in each other", maxInIndexes, maxNesting)
	}
	if bundle.IsImageIndex(d.MediaType) {
		var index ocispec.Index
		text, err := bundle.ReadBlob(p.layout, d, bundle.MaxDocument)
		if err != nil {
			return err
		}
		if err := decodeIndex(text, &index); err != nil {
			return fmt.Errorf("index %s: %w", d.Digest, err)
		}
		for _, m := range index.Manifests {
			if isAttestation(m) {
				continue
			}
			if err := bundle.CheckDigest(m.Digest); err != nil {
				return fmt.Errorf("index %s: %w", d.Digest, err)
			}
			if p.isAbsent(m) {
				continue
			}
			if err := p.add(m, nesting-1, left); err != nil {
				return err
			}
		}
		return nil
	}
	if !bundle.IsImageManifest(d.MediaType) {
		return fmt.Errorf("%s has the type %.100q, which is neither a manifest nor an index of an image", d.Digest, d.MediaType)
	}
	img, err := bundle.ReadImage(p.layout, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
	if err != nil {
		return err
	}
	if p.images[img.Platform] == nil { // the first one counts, as for a pull
		p.images[img.Platform] = img
	}
	return nil
}

// isAttestation reports whether a manifest of an index is not an image, but a statement about one.
func isAttestation(d ocispec.Descriptor) bool {
	return d.Annotations["vnd.docker.reference.type"] != "" || d.ArtifactType != "" ||
		d.Platform != nil && d.Platform.OS == "unknown"
}

// isAbsent reports whether a manifest must be ignored. An archive may lack a manifest, for example if the image was saved for only one
// platform. A registry has all manifests, and manifests for unwanted systems and architectures are ignored.
func (p *platformImages) isAbsent(d ocispec.Descriptor) bool {
	if _, remote := p.layout.(bundle.BlobOpener); remote {
		return d.Platform != nil && p.only != nil && !slices.ContainsFunc(p.only, func(wanted string) bool {
			return strings.HasPrefix(wanted+"/", d.Platform.OS+"/"+d.Platform.Architecture+"/")
		})
	}
	r, _, err := p.layout.Open(blobFile(d.Digest))
	if err == nil {
		r.Close()
	}
	return err != nil
}

// errNoArchive is the error for an image that is in no archive.
var errNoArchive = errors.New("no archive has it")

// choose returns the candidate with the complete name of an image. The error is errNoArchive if no candidate has this name. If archives
// have different images with this name, choose returns an error, because the result must not depend on the order of the archives.
func choose(archives []*archive, names map[string]string, want string) (bundle.Layout, ocispec.Descriptor, error) {
	var layout bundle.Layout
	var found ocispec.Descriptor
	var first string
	for _, a := range archives {
		for _, c := range a.images {
			if c.name == "" {
				c.name = completeName(names[a.name])
			}
			if !c.matches(want) {
				continue
			}
			if layout != nil && found.Digest != c.target.Digest {
				return nil, found, fmt.Errorf("%s and %s have different images: remove one of them", first, a.name)
			}
			if layout == nil {
				layout, found, first = a.layout, c.target, a.name
			}
		}
	}
	if layout == nil {
		return nil, found, errNoArchive
	}
	return layout, found, nil
}

// matches reports whether the candidate is the image with a complete name, which may have a digest.
func (c *candidate) matches(want string) bool {
	if c.name == want {
		return true
	}
	repository, sum, digested := strings.Cut(want, "@")
	return digested && c.target.Digest == digest.Digest(sum) && strings.HasPrefix(c.name, repository)
}

// selectPlatforms returns the platforms of the bundle: the given ones, or those that all images have.
func selectPlatforms(given []string, images []*platformImages) ([]string, error) {
	if len(given) > 0 {
		given = slices.Clone(given)
		slices.Sort(given)
		return given, nil
	}
	var common []string
	for i, p := range images {
		var have []string
		for platform := range p.images {
			have = append(have, platform)
		}
		if i == 0 {
			common = have
		}
		common = slices.DeleteFunc(common, func(p string) bool { return !slices.Contains(have, p) })
	}
	if len(images) > 0 && len(common) == 0 {
		return nil, fmt.Errorf("the images have no platform in common: name the platforms in %s", DescriptionFile)
	}
	slices.Sort(common)
	return common, nil
}
