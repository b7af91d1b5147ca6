package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// An entry is an image in the index. It does not change after it was added.
type entry struct {
	id       digest.Digest // digest of the config, which is the image ID in the CRI
	chainID  digest.Digest // chain ID of the top snapshot
	manifest ocispec.Descriptor
	user     string
	config   *ocispec.Image // the parts of the config that containers need, or nil if they are too large to cache
	size     int64          // size of the manifest, the config and the compressed layers, in bytes
}

// A record is one name of an image.
type record struct {
	target digest.Digest // digest of the index or manifest to which the name refers
	id     digest.Digest
}

// An imageIndex holds all images of the node in memory, with a few kilobytes for each. It is created
// from containerd's records when it is first used.
type imageIndex struct {
	mu     sync.Mutex
	loaded bool
	names  map[string]record
	images map[digest.Digest]*entry
	pins   map[string]bool // names of pinned images: see PinImages

	incomplete map[string]ocispec.Descriptor // names of images that cannot be used, and the documents to which they refer
	retryAt    map[string]time.Time          // when they may be read again
}

// After an attempt to read an image that cannot be used, look-ups do not read it again for retryRatio times the duration of the attempt. On
// a bad sector, a read takes seconds, and all look-ups wait meanwhile. After a short disturbance of a USB disk, an image is found soon.
const retryRatio = 60

// loadIndex creates the index. The caller holds index.mu.
func (s *Service) loadIndex(ctx context.Context) error {
	if s.index.loaded {
		return nil
	}
	list, err := s.c.Client.ImageService().List(ctx)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	names, found, incomplete := map[string]record{}, map[digest.Digest]*entry{}, map[string]ocispec.Descriptor{}
	for _, img := range list {
		e, err := s.readEntry(ctx, img.Target)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			// An image without an entry counts as missing, so it is pulled or imported again.
			s.log.Warn("image is incomplete and will not be used", "image", img.Name, "error", err)
			incomplete[img.Name] = img.Target
			continue
		}
		names[img.Name] = record{target: img.Target.Digest, id: e.id}
		found[e.id] = e
	}
	s.index.names, s.index.images, s.index.incomplete, s.index.loaded = names, found, incomplete, true
	s.index.retryAt = map[string]time.Time{}
	return nil
}

// retryIncomplete reads the images with the given names again that could not be used before, and adds those to the index that are intact
// now: another pull may have replaced a damaged document that several images share. It returns an error if ctx ends. The caller holds
// index.mu.
func (s *Service) retryIncomplete(ctx context.Context, names []string) error {
	for _, name := range names {
		target, incomplete := s.index.incomplete[name]
		if !incomplete {
			continue
		}
		began := time.Now()
		e, err := s.readEntry(ctx, target)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.index.retryAt[name] = time.Now().Add(time.Since(began) * s.retryRatio)
		if err != nil {
			continue // it was logged when the index was created
		}
		delete(s.index.incomplete, name)
		s.index.names[name] = record{target: target.Digest, id: e.id}
		s.index.images[e.id] = e
	}
	return nil
}

// readEntry reads an image from containerd's content store. It returns an error if the image's
// snapshot does not exist.
func (s *Service) readEntry(ctx context.Context, target ocispec.Descriptor) (*entry, error) {
	store := s.c.Client.ContentStore()
	p, err := s.chooseImage(ctx, target, func(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
		return readStored(ctx, store, d)
	})
	if err != nil {
		return nil, err
	}
	e := p.newEntry()
	if e.chainID != "" {
		if _, err := s.snapshotter().Stat(ctx, e.chainID.String()); err != nil {
			return nil, fmt.Errorf("snapshot of image %s: %w", e.id, err)
		}
	}
	return e, nil
}

// chainIDs returns the chain IDs of the image's snapshots, beginning with the bottom layer.
func (p *pickedImage) chainIDs() []digest.Digest {
	return identity.ChainIDs(slices.Clone(p.image.RootFS.DiffIDs))
}

func (p *pickedImage) newEntry() *entry {
	e := &entry{
		id:       p.config.Digest,
		chainID:  identity.ChainID(p.image.RootFS.DiffIDs),
		manifest: p.manifest,
		user:     p.image.Config.User,
		size:     p.manifest.Size + p.config.Size,
	}
	if configWeight(&p.image.Config) <= maxCachedConfig {
		e.config = &ocispec.Image{Platform: p.image.Platform, Config: p.image.Config}
	}
	for _, l := range p.layers {
		e.size += l.Size
	}
	return e
}

// maxCachedConfig is the maximum size of a config that the index caches, in bytes. Larger configs
// are read from the content store when they are needed.
const maxCachedConfig = 16 << 10

// configWeight returns the approximate size of c in memory, in bytes.
func configWeight(c *ocispec.ImageConfig) (sum int) {
	const header = 16
	lists := [][]string{c.Env, c.Entrypoint, c.Cmd, slices.Collect(maps.Keys(c.Volumes)), {c.User, c.WorkingDir, c.StopSignal}}
	for _, list := range lists {
		for _, word := range list {
			sum += header + len(word)
		}
	}
	return sum
}

// configOf returns the config of an image, from the index or the content store.
func (s *Service) configOf(ctx context.Context, e *entry) (ocispec.Image, error) {
	if e.config != nil {
		return *e.config, nil
	}
	d := s.newDocuments(func(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
		return readStored(ctx, s.c.Client.ContentStore(), d)
	})
	defer d.keepOnly(nil)
	var doc configDocument
	if err := d.decode(ctx, ocispec.Descriptor{Digest: e.id}, maxConfig, &doc); err != nil {
		return ocispec.Image{}, fmt.Errorf("config of image %s: %w", e.id, err)
	}
	return doc.toOCI()
}

// findImage returns the image with this ID, ID prefix, tag or digest. The error is errdefs.ErrNotFound
// if there is none.
func (s *Service) findImage(ctx context.Context, ref string) (*entry, error) {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	if err := s.loadIndex(ctx); err != nil {
		return nil, err
	}
	e, err := s.index.find(ref)
	names := slices.DeleteFunc(s.index.incompleteNames(ref), func(name string) bool {
		return time.Now().Before(s.index.retryAt[name])
	})
	if errors.Is(err, errdefs.ErrNotFound) && len(names) > 0 {
		if err := s.retryIncomplete(ctx, names); err != nil {
			return nil, err
		}
		e, err = s.index.find(ref)
	}
	return e, err
}

func (x *imageIndex) find(ref string) (*entry, error) {
	if id, err := digest.Parse(ref); err == nil {
		if e := x.images[id]; e != nil {
			return e, nil
		}
		return nil, noImage(ref, errdefs.ErrNotFound)
	}
	named, err := normalizeName(ref)
	if err == nil {
		if e := x.byName(named); e != nil {
			return e, nil
		}
		err = noImage(ref, errdefs.ErrNotFound)
	}
	if idPrefix(ref) {
		return x.byPrefix(ref)
	}
	return nil, err
}

func (x *imageIndex) byName(named reference.Named) *entry {
	if r, ok := x.names[named.String()]; ok {
		return x.images[r.id]
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return nil
	}
	repo := reference.TrimNamed(named).String()
	for name, r := range x.names {
		e := x.images[r.id]
		if inRepo(name, repo) && (r.target == digested.Digest() || e.manifest.Digest == digested.Digest()) {
			return e
		}
	}
	return nil
}

func inRepo(name, repo string) bool {
	rest, ok := strings.CutPrefix(name, repo)
	return ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "@"))
}

func (x *imageIndex) byPrefix(prefix string) (*entry, error) {
	var found *entry
	for id, e := range x.images {
		if !strings.HasPrefix(id.Encoded(), prefix) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("several image IDs begin with %q: %w", prefix, errdefs.ErrInvalidArgument)
		}
		found = e
	}
	if found == nil {
		return nil, noImage(prefix, errdefs.ErrNotFound)
	}
	return found, nil
}

// namesOf returns the names of an image, sorted.
func (x *imageIndex) namesOf(id digest.Digest) []string {
	var out []string
	for name, r := range x.names {
		if r.id == id {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// recordName stores a complete image under a name, in containerd's metadata and in the index. If the
// name already refers to this image, nothing is written. The caller must still hold the lease under
// which the image was created.
func (s *Service) recordName(ctx context.Context, name string, target ocispec.Descriptor, e *entry) error {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	if err := s.loadIndex(ctx); err != nil {
		return err
	}
	clear(s.index.retryAt) // the images that cannot be used may share its documents and layers
	old, exists := s.index.names[name]
	if exists && old.target == target.Digest && old.id == e.id {
		return nil
	}
	if exists && old.id != e.id {
		if err := s.keepUntagged(ctx, name, old); err != nil {
			return err
		}
	}
	store := s.c.Client.ImageService()
	// The annotations and the platform of the descriptor belong to the index that contains it, so
	// they are not stored.
	img := images.Image{Name: name, Target: ocispec.Descriptor{MediaType: target.MediaType, Digest: target.Digest, Size: target.Size}}
	_, err := store.Create(ctx, img)
	if errdefs.IsAlreadyExists(err) {
		_, err = store.Update(ctx, img, "target")
	}
	if err != nil {
		return fmt.Errorf("record image %s: %w", name, err)
	}
	s.index.names[name] = record{target: target.Digest, id: e.id}
	delete(s.index.incomplete, name)
	s.index.images[e.id] = e
	s.index.dropUnnamed()
	return nil
}

// keepUntagged is called when a tag moves to another image. If the old image has no other name,
// keepUntagged records it under its digest, because containers may still need it. Image garbage
// collection removes it later.
func (s *Service) keepUntagged(ctx context.Context, name string, old record) error {
	if len(s.index.namesOf(old.id)) > 1 {
		return nil
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return fmt.Errorf("image reference %q: %w", name, err)
	}
	img, err := s.c.Client.ImageService().Get(ctx, name)
	if err != nil {
		return fmt.Errorf("read image %s: %w", name, err)
	}
	img.Name = withDigest(named, old.target)
	if _, err := s.c.Client.ImageService().Create(ctx, img); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("record image %s: %w", img.Name, err)
	}
	s.index.names[img.Name] = old
	return nil
}

// dropUnnamed removes images without a name from the index.
func (x *imageIndex) dropUnnamed() {
	named := map[digest.Digest]bool{}
	for _, r := range x.names {
		named[r.id] = true
	}
	maps.DeleteFunc(x.images, func(id digest.Digest, _ *entry) bool { return !named[id] })
}
