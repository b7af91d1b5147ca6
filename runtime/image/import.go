package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/cri"
)

// Labels by which containerd's garbage collector finds the manifest, the config and the snapshots
// of an index.
const (
	gcContent  = "containerd.io/gc.ref.content."
	gcSnapshot = "containerd.io/gc.ref.snapshot."
)

// ImportArchive imports the images of an OCI layout or docker-archive tarball, which may be compressed with gzip or zstd. It returns the
// references of the images. The reference of an image without a name is its image ID. The archive's name is used in messages. If an image
// supports several platforms, only the variant for this host is imported. An archive may be imported again. If any part of the tarball is
// damaged, nothing is imported.
func (s *Service) ImportArchive(ctx context.Context, r io.Reader, name string, progress func(cri.ImportProgress)) ([]string, error) {
	progress, end := s.active.trackActivity(name, 0, progress)
	defer end()
	refs, err := s.importStream(withNamespace(ctx), &meteredReader{Reader: r, name: name, report: progress}, nil)
	if err != nil {
		return nil, importError(name, err)
	}
	return refs, nil
}

func importError(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the archive is truncated: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("import %s: %w", name, err)
}

// An imageFilter reports whether an image of an archive is imported. nil imports all images. The name may be empty.
type imageFilter func(name string) bool

func (s *Service) importStream(ctx context.Context, in *meteredReader, only imageFilter) ([]string, error) {
	ctx, done, err := s.withLease(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	a, err := s.readStream(ctx, in)
	if err != nil {
		return nil, err
	}
	return s.importImages(ctx, a, only, in.report)
}

// readStream reads an archive, which may be compressed as a whole.
func (s *Service) readStream(ctx context.Context, in io.Reader) (*archive, error) {
	at := &allocation{shared: &s.shared}
	defer at.releaseAll()
	plain, err := newDecompressor(untrusted.CancelableReader(ctx, in), func(bytes int64) error { return at.needWindow(ctx, bytes) })
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	return s.readArchive(ctx, plain, nil)
}

// An importChoice decides which images of a file are imported, when its digest is known: none if skip is true.
type importChoice func(digest.Digest) (skip bool, only imageFilter, err error)

// importFile is like ImportArchive for a file, except that the caller chooses the images. If the archive is not compressed as a
// whole, its layers are unpacked directly from the file, so they are not written twice.
func (s *Service) importFile(
	ctx context.Context, f *os.File, choose importChoice, progress func(cri.ImportProgress),
) ([]string, error) {
	refs, err := s.importFileOnce(withNamespace(ctx), f, choose, progress)
	if err != nil {
		return nil, importError(f.Name(), err)
	}
	return refs, nil
}

func (s *Service) importFileOnce(
	ctx context.Context, f *os.File, choose importChoice, progress func(cri.ImportProgress),
) ([]string, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	progress, end := s.active.trackActivity(f.Name(), info.Size(), progress)
	defer end()
	head := make([]byte, headSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	sum := digest.Canonical.Digester()
	in := io.TeeReader(untrusted.CancelableReader(ctx, &meteredReader{Reader: f, name: f.Name(), report: progress}), sum.Hash())
	var a *archive
	format := detectCompression(head[:n])
	if format != "" {
		_, err = io.Copy(io.Discard, in)
	} else {
		a, err = s.readArchive(ctx, in, f)
	}
	if err != nil {
		return nil, err
	}
	skip, only, err := choose(sum.Digest())
	if skip || err != nil {
		return nil, err
	}
	if a == nil {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		return s.importStream(ctx, &meteredReader{Reader: f, name: f.Name(), report: progress}, only)
	}
	ctx, done, err := s.withLease(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.importImages(ctx, a, only, progress)
}

// importImages imports the chosen images of an archive that are for this host. Without a filter, it returns an error if there are none.
func (s *Service) importImages(ctx context.Context, a *archive, only imageFilter, tell func(cri.ImportProgress)) ([]string, error) {
	list, err := a.listImages(ctx)
	if err != nil {
		return nil, err
	}
	var refs []string
	var wrongPlatforms error // error about images for other hosts
	skipped := 0
	for _, n := range list {
		if only != nil && !only(n.name) {
			continue
		}
		tell(cri.ImportProgress{Ref: n.displayName(), Status: "unpacking"})
		ref, err := s.importImage(ctx, a, n)
		var wrong *wrongPlatform
		switch {
		case errors.As(err, &wrong):
			skipped++
			if skipped <= maxListed {
				wrongPlatforms = errors.Join(wrongPlatforms, fmt.Errorf("%s: %w", n.displayName(), err))
			}
		case err != nil:
			return nil, fmt.Errorf("%s: %w", n.displayName(), err)
		default:
			refs = append(refs, ref)
			tell(cri.ImportProgress{Ref: ref, Status: "done"})
		}
	}
	if len(refs) > 0 || only != nil {
		return refs, nil
	}
	if wrongPlatforms != nil {
		return nil, wrongPlatforms
	}
	return nil, fmt.Errorf("the archive has no image: %w", errdefs.ErrInvalidArgument)
}

func (n namedImage) displayName() string {
	if n.name != "" {
		return n.name
	}
	return n.target.Digest.String()
}

// importImage unpacks and records one image of an archive if it does not exist yet.
func (s *Service) importImage(ctx context.Context, a *archive, n namedImage) (string, error) {
	p, err := s.chooseImage(ctx, n.target, a.read)
	if err != nil {
		return "", err
	}
	name := n.name
	if name == "" {
		name = p.config.Digest.String()
	}
	if s.recordedID(ctx, name, p.targetDescriptor().Digest) != "" {
		return name, nil
	}
	unpacked, err := s.countUnpacked(ctx, p.chainIDs())
	if err != nil {
		return "", err
	}
	if err := s.unpackLayers(ctx, p, unpacked, a); err != nil {
		return "", err
	}
	if err := s.storeDocuments(ctx, p, a.read); err != nil {
		return "", err
	}
	if err := s.recordName(ctx, name, p.targetDescriptor(), p.newEntry()); err != nil {
		return "", err
	}
	s.notifyChange()
	return name, nil
}

// targetDescriptor returns the descriptor to which the image's name refers.
func (p *pickedImage) targetDescriptor() ocispec.Descriptor {
	if len(p.parents) > 0 {
		return p.parents[0]
	}
	return p.manifest
}

// storeDocuments writes the indexes, the manifest and the config of an unpacked image to the content store,
// if they do not exist there. Labels lead the garbage collector from an index to the manifest, the
// config and the snapshot. No label refers to a layer, so the blobs of layers are deleted.
func (s *Service) storeDocuments(ctx context.Context, p *pickedImage, read readFunc) error {
	labels := map[string]string{}
	if chain := p.newEntry().chainID; chain != "" {
		labels[gcSnapshot+s.c.Snapshotter] = chain.String()
	}
	if err := s.storeBlob(ctx, p.config, labels, read); err != nil {
		return err
	}
	if err := s.storeBlob(ctx, p.manifest, map[string]string{gcContent + "config": p.config.Digest.String()}, read); err != nil {
		return err
	}
	next := p.manifest.Digest
	for i := len(p.parents) - 1; i >= 0; i-- {
		if err := s.storeBlob(ctx, p.parents[i], map[string]string{gcContent + "m.0": next.String()}, read); err != nil {
			return err
		}
		next = p.parents[i].Digest
	}
	return nil
}

// storeBlob writes a document to the content store, if it does not exist there. An existing file that is damaged is replaced.
func (s *Service) storeBlob(ctx context.Context, desc ocispec.Descriptor, labels map[string]string, read readFunc) error {
	b, err := read(ctx, desc)
	if err == nil {
		err = checkDigest(desc.Digest, b)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, err)
	}
	store := s.c.Client.ContentStore()
	size := ocispec.Descriptor{Digest: desc.Digest, Size: int64(len(b))}
	// If the blob already exists, WriteBlob adds it to the lease, and does not read it.
	err = content.WriteBlob(ctx, store, "keep-"+leaseOf(ctx)+"-"+desc.Digest.String(), bytes.NewReader(b), size, content.WithLabels(labels))
	if err == nil {
		err = s.repairBlob(ctx, desc.Digest, b)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", desc.Digest, err)
	}
	info, err := store.Info(ctx, desc.Digest)
	if err != nil {
		return fmt.Errorf("keep %s: %w", desc.Digest, err)
	}
	var paths []string
	for k, v := range labels {
		if info.Labels[k] != v {
			paths = append(paths, "labels."+k)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	if _, err := store.Update(ctx, content.Info{Digest: desc.Digest, Labels: maps.Clone(labels)}, paths...); err != nil {
		return fmt.Errorf("label %s: %w", desc.Digest, err)
	}
	return nil
}

// repairBlob replaces the file of a recorded document if the file is missing or damaged. containerd cannot do that: its content store takes
// a file with the name of the digest for the content, until the garbage collector has removed the file.
func (s *Service) repairBlob(ctx context.Context, d digest.Digest, b []byte) error {
	_, err := readStored(ctx, s.c.Client.ContentStore(), ocispec.Descriptor{Digest: d})
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	s.log.Warn("a stored document of an image was damaged and is replaced", "digest", d, "error", err)
	path := filepath.Join(s.c.Root, "content", "blobs", d.Algorithm().String(), d.Encoded())
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.Write(path, b, 0o444)
}
