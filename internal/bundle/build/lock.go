package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/inputweight"
)

const (
	// LockFile is the name of the file with the digests of images that come from registries.
	LockFile = "images.lock"
	lockKind = "BundleLock"
)

// Registries reads images from registries.
type Registries interface {
	// Resolve returns the digest to which the registry resolves a complete image name.
	Resolve(ctx context.Context, name string) (digest.Digest, error)
	// Open returns the image with a digest in a repository, such as docker.io/library/nginx. When ctx ends, reads of the layout fail. The
	// caller closes the layout.
	Open(ctx context.Context, repository string, d digest.Digest) (bundle.Layout, ocispec.Descriptor, error)
}

// lock is the content of the lock file. A build reads an image that is in no archive from its registry, with the digest in the lock file.
// So a build gives the same bytes after a tag has moved. An image that is neither in an archive nor in the lock file is missing.
type lock struct {
	APIVersion string                   `json:"apiVersion"`
	Kind       string                   `json:"kind"`
	Images     map[string]digest.Digest `json:"images"` // by complete name
}

// readLock reads the lock file of a source directory. If there is no file, the lock is empty.
func readLock(dir string) (*lock, error) {
	l := &lock{}
	text, err := readFile(filepath.Join(dir, LockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = inputweight.YAML(text, maxWeight)
	}
	if err == nil {
		err = yaml.UnmarshalStrict(text, l)
	}
	if err == nil && (l.APIVersion != apiVersion || l.Kind != lockKind) {
		err = fmt.Errorf("apiVersion and kind must be %s and %s", apiVersion, lockKind)
	}
	for name, d := range l.Images {
		if err == nil && (bundle.CheckDigest(d) != nil || completeName(name) != name) {
			err = fmt.Errorf("%.200q with the digest %.100q is not a complete image name with its digest", name, d)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", LockFile, err)
	}
	return l, nil
}

// Lock writes the lock file. The file gets the digest of each image that the pods or bundle.yaml name, and that is in no archive. Lock
// keeps the digests that are already in the file, unless update is true. It returns a line for each change. If nothing changes, it writes
// nothing.
func (b *Build) Lock(ctx context.Context, update bool) (changes []string, err error) {
	s, err := readSource(b.Dir)
	if err != nil {
		return nil, err
	}
	inv, err := b.inventory(s)
	if err != nil {
		return nil, err
	}
	if b.archives, err = b.openArchives(ctx, filepath.Join(b.Dir, imagesDir)); err != nil {
		return nil, err
	}
	wanted, err := wantedImages(&s.description, inv)
	if err != nil {
		return nil, err
	}
	old, err := readLock(b.Dir)
	if err != nil {
		return nil, err
	}
	next := lock{APIVersion: apiVersion, Kind: lockKind, Images: map[string]digest.Digest{}}
	for _, name := range wanted {
		if _, _, err := choose(b.archives, s.description.Archives, name); !errors.Is(err, errNoArchive) {
			continue
		}
		d, known := old.Images[name]
		if !known || update {
			if d, err = b.digestOf(ctx, name); err != nil {
				return nil, fmt.Errorf("image %s: %w", name, err)
			}
		}
		next.Images[name] = d
	}
	if changes = changedImages(old.Images, next.Images); len(changes) == 0 {
		return nil, nil
	}
	text, err := yaml.Marshal(next)
	if err != nil {
		return nil, err
	}
	return changes, durable.Write(filepath.Join(b.Dir, LockFile), text, 0o644)
}

// digestOf returns the digest in the name of an image. If the name has no digest, digestOf asks the registry.
func (b *Build) digestOf(ctx context.Context, name string) (digest.Digest, error) {
	d := digest.Digest("")
	var err error
	if _, sum, digested := strings.Cut(name, "@"); digested {
		d = digest.Digest(sum)
	} else if d, err = b.Registries.Resolve(ctx, name); err != nil {
		return "", err
	}
	return d, bundle.CheckDigest(d)
}

// changedImages returns a line for each image that was added, changed or removed.
func changedImages(old, next map[string]digest.Digest) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(next)) {
		switch d, known := old[name]; {
		case !known:
			lines = append(lines, fmt.Sprintf("+ %s %s", name, next[name]))
		case d != next[name]:
			lines = append(lines, fmt.Sprintf("~ %s %s -> %s", name, d, next[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, stays := next[name]; !stays {
			lines = append(lines, "- "+name)
		}
	}
	return lines
}

// openLocked opens an image in its registry, with the digest in the lock file.
func (b *Build) openLocked(ctx context.Context, l *lock, name string) (bundle.Layout, ocispec.Descriptor, error) {
	d, known := l.Images[name]
	if !known || b.Registries == nil {
		return nil, ocispec.Descriptor{}, errNoArchive
	}
	repository, _, _ := strings.Cut(name, "@")
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository = repository[:i]
	}
	layout, target, err := b.Registries.Open(ctx, repository, d)
	if err == nil {
		b.layouts = append(b.layouts, layout)
	}
	return layout, target, err
}
