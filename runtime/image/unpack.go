package image

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	layers "github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/untrusted"
)

func (s *Service) snapshotter() snapshots.Snapshotter {
	return s.c.Client.SnapshotService(s.c.Snapshotter)
}

// An unpackState is the result of countUnpacked: the number of layers of an image that are unpacked already, counted from the bottom, and
// the number of flushes that had failed at that time.
type unpackState struct{ layers, failures int }

// unpackLayers creates the snapshots of an image's layers and flushes them to disk. It skips the bottom layers that are
// unpacked already. The lease of ctx protects the snapshots. A power cut before the flush may damage them; see dropUnfinished.
func (s *Service) unpackLayers(ctx context.Context, p *pickedImage, done unpackState, src content.Provider) error {
	chain := p.chainIDs()
	for i := done.layers; i < len(chain); i++ {
		parent := ""
		if i > 0 {
			parent = chain[i-1].String()
		}
		l := newLayer{p.layers[i], p.image.RootFS.DiffIDs[i], parent, chain[i].String(), done.failures}
		if err := s.unpackLayer(ctx, l, src); err != nil {
			return fmt.Errorf("unpack layer %d (%s): %w", i+1, p.layers[i].Digest, err)
		}
	}
	if err := s.flushes.flush(done.failures); err != nil {
		return fmt.Errorf("flush image layers to disk: %w", err)
	}
	return nil
}

// countUnpacked returns how many layers of an image exist, counted from the bottom layer. It adds the
// topmost existing layer to the lease of ctx.
func (s *Service) countUnpacked(ctx context.Context, chain []digest.Digest) (out unpackState, err error) {
	sn := s.snapshotter()
	if out.failures, err = s.flushes.removeLost(ctx, sn, chain); err != nil {
		return out, err
	}
	for i := len(chain); i > 0; i-- {
		id := chain[i-1].String()
		_, err := sn.Stat(ctx, id)
		if err == nil {
			if err := s.holdSnapshot(ctx, id); err != nil {
				return out, err
			}
			_, err = sn.Stat(ctx, id) // the garbage collector may have removed it before it was in the lease
		}
		switch {
		case err == nil:
			out.layers = i
			return out, nil
		case !errdefs.IsNotFound(err):
			return out, fmt.Errorf("snapshot %s: %w", id, err)
		}
	}
	return out, nil
}

// A newLayer is a layer to unpack: its blob, the digest of its content, and the chain IDs of its parent and of itself.
type newLayer struct {
	blob       ocispec.Descriptor
	diffID     digest.Digest
	parent, id string
	failures   int // see layerFlush
}

func (s *Service) unpackLayer(ctx context.Context, l newLayer, src content.Provider) (err error) {
	blob, err := src.ReaderAt(ctx, l.blob) // may wait for a download
	if err != nil {
		return err
	}
	defer blob.Close()
	if err := checkMediaType(l.blob.MediaType); err != nil {
		return err
	}
	at := &allocation{shared: &s.shared}
	defer at.releaseAll()
	if err := at.waitForTurn(ctx); err != nil {
		return err
	}
	if err := s.flushes.begin(s.c.Root, l.failures); err != nil {
		return err
	}
	defer s.flushes.end()
	sn := s.snapshotter()
	key := fmt.Sprintf(snapshots.UnpackKeyFormat, rand.Text(), l.id)
	mounts, err := sn.Prepare(ctx, key, l.parent)
	if err != nil {
		return fmt.Errorf("prepare snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			s.discardSnapshot(ctx, key)
		}
	}()
	in := content.NewReader(blob)
	if _, ok := blob.(layoutReader); ok {
		in = patientReader{in, at, func() error { return at.waitForTurn(ctx) }}
	}
	got, err := s.extractLayer(ctx, at, in, mounts, l.parent == "")
	if err != nil {
		return err
	}
	if got != l.diffID {
		return fmt.Errorf("its digest is %s, but the image's config has %s: %w", got, l.diffID, errdefs.ErrInvalidArgument)
	}
	err = s.flushes.commit(l.id, l.failures, func() error { return sn.Commit(ctx, l.id, key) })
	if errdefs.IsAlreadyExists(err) { // another import has created it
		s.discardSnapshot(ctx, key)
		return s.holdSnapshot(ctx, l.id)
	}
	return err
}

// discardSnapshot removes the snapshot of a layer that is unfinished or not needed, even if ctx has ended.
func (s *Service) discardSnapshot(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := s.snapshotter().Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) {
		// It will be removed with the lease.
		s.log.Warn("the snapshot of an unfinished layer could not be removed", "snapshot", key, "error", err)
	}
}

// checkMediaType returns an error for a layer that is encrypted or not a tar archive. The compression is
// detected from the content, as in containerd.
func checkMediaType(mediaType string) error {
	format, err := images.DiffCompression(context.Background(), mediaType)
	base, suffix, _ := strings.Cut(mediaType, "+")
	if err == nil && !strings.Contains(suffix, "encrypted") && (format != "" || suffix == "" && strings.HasSuffix(base, ".tar")) {
		return nil
	}
	return fmt.Errorf("the layer's media type %q is not supported: use a tar archive, plain or compressed with gzip or zstd: %w",
		mediaType, errdefs.ErrNotImplemented)
}

// extractLayer unpacks a layer into a new snapshot and returns the digest of its uncompressed content. It writes to the snapshot's
// directory and does not mount it, because a mount would remain if the process were killed. The first layer of an image has no parent.
func (s *Service) extractLayer(
	ctx context.Context, at *allocation, r io.Reader, mounts []mount.Mount, bottom bool,
) (digest.Digest, error) {
	dir, opts, err := unpackTarget(mounts)
	if err != nil {
		return "", err
	}
	plain, err := newDecompressor(untrusted.CancelableReader(ctx, r), func(bytes int64) error { return at.needWindow(ctx, bytes) })
	if err != nil {
		return "", err
	}
	defer plain.Close()
	sum := digest.Canonical.Digester()
	in := &positionReader{Reader: io.TeeReader(s.newCountingReader(plain), sum.Hash())}
	in.allowFile(0)
	files := &spaceFilter{dir: s.c.Root, promised: &s.promised}
	defer files.subtractWritten()
	names := &layerNames{in: in, root: dir, disk: s.c.Root, reserveSpace: func(n int64) error { return at.needNames(ctx, n) }}
	opts = append(opts, layers.WithFilter(func(h *tar.Header) (bool, error) {
		if err := errors.Join(at.takeTurns(ctx), names.checkHeader(h)); err != nil {
			return false, err
		}
		return files.checkHeader(h)
	}))
	if bottom {
		opts = append(opts, layers.WithConvertWhiteout(bottomWhiteout))
	}
	if _, err := layers.Apply(ctx, dir, yieldingReader{in, func() error { return at.takeTurns(ctx) }}, opts...); err != nil {
		return "", err
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(in, maxPadding+1)); err != nil { // the padding is part of the digest
		return "", err
	} else if n > maxPadding {
		return "", fmt.Errorf("the layer has data after its end: %w", errdefs.ErrInvalidArgument)
	}
	return sum.Digest(), nil
}

// unpackTarget returns the directory for the files of a layer in a snapshot with these mounts. For an
// overlay this is the upper directory, and opts contains the lower directories, in which containerd
// looks for the files that whiteouts hide. For a first layer, and for snapshotters that copy, it is
// the mounted directory itself.
func unpackTarget(mounts []mount.Mount) (dir string, opts []layers.ApplyOpt, err error) {
	if len(mounts) != 1 {
		return "", nil, fmt.Errorf("snapshot has %d mounts: %w", len(mounts), errdefs.ErrNotImplemented)
	}
	switch m := mounts[0]; m.Type {
	case "bind":
		return m.Source, nil, nil
	case "overlay":
		for _, o := range m.Options {
			if upper, ok := strings.CutPrefix(o, "upperdir="); ok {
				dir = upper
			} else if lower, ok := strings.CutPrefix(o, "lowerdir="); ok {
				opts = append(opts, layers.WithParents(strings.Split(lower, ":")))
			}
		}
		if dir == "" {
			return "", nil, fmt.Errorf("snapshot is read-only: %w", errdefs.ErrFailedPrecondition)
		}
		return dir, append(opts, layers.WithConvertWhiteout(layers.OverlayConvertWhiteout)), nil
	default:
		return "", nil, fmt.Errorf("snapshot has a mount of type %s: %w", m.Type, errdefs.ErrNotImplemented)
	}
}
