package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/podspec"
)

// A Build is one build of a bundle.
type Build struct {
	Dir    string
	Number int64 // replaces the number in bundle.yaml; 0 means that bundle.yaml has the number
	// Inventory reads manifests with the code of islet apply.
	Inventory func([]finding.File) (*bundle.Inventory, error)
	// PlainSecrets allows Secrets that are not sealed.
	PlainSecrets bool
	// TempDir is the directory for decompressed archives. Empty means the temporary directory of the system.
	TempDir string
	// Progress is called during Run. The parameter done is the number of bytes of an archive that were decompressed or whose digests were
	// computed. It may be nil.
	Progress func(archive string, done int64)

	// Registries reads the images of the lock file. It may be nil.
	Registries Registries

	archives []*archive
	layouts  []bundle.Layout // the open layouts of images from registries
	// Notes are remarks for the user, such as unused images. Run sets them.
	Notes []string
}

// Run returns the bundle. The caller writes it before Close.
func (b *Build) Run(ctx context.Context) (*bundle.Artefact, error) {
	s, err := readSource(b.Dir)
	if err != nil {
		return nil, err
	}
	inv, err := b.inventory(s)
	if err != nil {
		return nil, err
	}
	c, err := b.contents(&s.description)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", DescriptionFile, err)
	}
	if b.archives, err = b.openArchives(ctx, filepath.Join(b.Dir, imagesDir)); err != nil {
		return nil, err
	}
	if err := b.checkArchiveNames(&s.description); err != nil {
		return nil, fmt.Errorf("%s: %w", DescriptionFile, err)
	}
	blobs, err := b.images(ctx, c, &s.description, inv)
	if missing := inv.MissingObjects(); len(missing) > 0 {
		err = errors.Join(fmt.Errorf("the bundle does not have\n  %s", strings.Join(missing, "\n  ")), err)
	}
	if err != nil {
		return nil, err
	}
	return bundle.Assemble(c, s.files, blobs)
}

// checkArchiveNames returns an error if the description names an archive that does not exist.
func (b *Build) checkArchiveNames(d *Description) error {
	for _, name := range slices.Sorted(maps.Keys(d.Archives)) {
		if !slices.ContainsFunc(b.archives, func(a *archive) bool { return a.name == name }) {
			return fmt.Errorf("archives: %q: there is no such file or directory in %s/", name, imagesDir)
		}
	}
	return nil
}

// Close closes the archives.
func (b *Build) Close() error {
	var errs []error
	for _, a := range b.archives {
		errs = append(errs, a.layout.Close())
	}
	for _, l := range b.layouts {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// inventory checks the manifests and sealed files.
func (b *Build) inventory(s *source) (*bundle.Inventory, error) {
	inv, err := b.Inventory(s.manifests)
	if err != nil {
		return nil, err
	}
	if !b.PlainSecrets {
		for _, o := range inv.Objects {
			if o.Plain {
				return nil, fmt.Errorf("the Secret %s/%s is readable by everyone who has the bundle: "+
					"seal its file with 'islet bundle seal', or allow it with --plain-secrets", o.Namespace, o.Name)
			}
		}
	}
	for _, f := range s.sealed {
		objects, err := SealedObjects(f.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		inv.Objects = append(inv.Objects, objects...)
	}
	if twice := inv.Twice(); len(twice) > 0 {
		return nil, fmt.Errorf("more than one manifest defines %s", strings.Join(twice, ", "))
	}
	return inv, nil
}

// SealedObjects returns the Secrets of a sealed file as it shows them.
func SealedObjects(data []byte) (out []bundle.Object, err error) {
	docs, err := sealed.Parse(data)
	for _, d := range docs {
		out = append(out, bundle.Object{Kind: podspec.Secret, Namespace: d.Metadata.Namespace, Name: d.Metadata.Name, Keys: d.Keys})
	}
	return out, err
}

func (b *Build) contents(d *Description) (*bundle.Contents, error) {
	c := &bundle.Contents{Name: d.Name, Number: d.Number, For: d.For}
	if b.Number != 0 {
		c.Number = b.Number
	}
	if c.Number == 0 {
		return nil, errors.New("number: it is missing: write it here, or use --number")
	}
	if d.Expires != nil {
		c.Expires = bundle.FormatTime(*d.Expires)
	}
	if c.For != nil {
		slices.Sort(c.For.Names)
	}
	return c, c.Validate()
}

// images adds the images that the pods and bundle.yaml name to the contents. It returns their blobs in the order of a bundle. The error
// lists every missing image, and every missing platform of an image.
func (b *Build) images(ctx context.Context, c *bundle.Contents, d *Description, inv *bundle.Inventory) ([]bundle.Part, error) {
	wanted, err := wantedImages(d, inv)
	if err != nil {
		return nil, err
	}
	locked, err := readLock(b.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	var found []*platformImages
	var errs []error
	for _, name := range wanted {
		p, err := b.findImage(ctx, d, locked, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
			continue
		}
		names, found = append(names, name), append(found, p)
	}
	if c.Platforms, err = selectPlatforms(d.Platforms, found); err != nil {
		errs = append(errs, err)
	}
	b.noteUnused(found)
	blobs, err := collect(c, names, found)
	return blobs, errors.Join(append(errs, err)...)
}

// wantedImages returns the sorted complete names of the images that the pods and bundle.yaml name.
func wantedImages(d *Description, inv *bundle.Inventory) ([]string, error) {
	wanted := inv.Images()
	for _, name := range d.Images {
		if err := podspec.CheckImage(name); err != nil {
			return nil, fmt.Errorf("%s: images: %.200q %w", DescriptionFile, name, err)
		}
		wanted = append(wanted, podspec.FullImage(name))
	}
	slices.Sort(wanted)
	return slices.Compact(wanted), nil
}

// findImage returns the manifests of an image from an archive. If no archive has the image, it reads the image from its registry.
func (b *Build) findImage(ctx context.Context, d *Description, locked *lock, name string) (*platformImages, error) {
	layout, target, err := choose(b.archives, d.Archives, name)
	if !errors.Is(err, errNoArchive) {
		if err != nil {
			return nil, err
		}
		return findPlatforms(layout, target, nil)
	}
	if layout, target, err = b.openLocked(ctx, locked, name); errors.Is(err, errNoArchive) {
		return nil, fmt.Errorf("it is in no archive of %[1]s/: docker save -o %[1]s/NAME.tar %[2]s, or add its digest to %[3]s: "+
			"islet bundle lock %[4]s", imagesDir, name, LockFile, b.Dir)
	}
	if err != nil {
		return nil, err
	}
	return findPlatforms(layout, target, d.Platforms)
}

// collect fills in the images of the contents, and returns manifests, configs and layers.
func collect(c *bundle.Contents, names []string, found []*platformImages) ([]bundle.Part, error) {
	var manifests, configs, layers []bundle.Part
	var errs []error
	for i, p := range found {
		img := bundle.Image{Name: names[i], Digest: p.target.Digest}
		for _, platform := range c.Platforms {
			one := p.images[platform]
			if one == nil {
				errs = append(errs, fmt.Errorf("image %s: it has no variant for %s, but for %s", names[i], platform,
					strings.Join(slices.Sorted(maps.Keys(p.images)), ", ")))
				continue
			}
			m := one.Manifest
			img.Manifests = append(img.Manifests,
				bundle.ImageManifest{Platform: platform, MediaType: m.MediaType, Digest: m.Digest, Size: m.Size})
			manifests = append(manifests, bundle.BlobPart(p.layout, m))
			configs = append(configs, bundle.BlobPart(p.layout, one.Config))
			for _, l := range one.Layers {
				layers = append(layers, bundle.BlobPart(p.layout, l))
			}
		}
		c.Images = append(c.Images, img)
	}
	return slices.Concat(manifests, configs, layers), errors.Join(errs...)
}

// noteUnused adds a note for each image that is in an archive and not in the bundle.
func (b *Build) noteUnused(found []*platformImages) {
	for _, a := range b.archives {
		for _, c := range a.images {
			used := slices.ContainsFunc(found, func(p *platformImages) bool { return p.target.Digest == c.target.Digest })
			if !used {
				name := c.name
				if name == "" {
					name = c.target.Digest.String()
				}
				b.Notes = append(b.Notes, fmt.Sprintf("%s/%s: no pod uses %s, so the bundle does not have it", imagesDir, a.name, name))
			}
		}
	}
}

func decodeIndex(text []byte, index *ocispec.Index) error {
	if err := inputweight.JSON(text, index, maxWeight); err != nil {
		return err
	}
	return json.Unmarshal(text, index)
}
