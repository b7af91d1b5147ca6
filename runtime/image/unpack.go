package image

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	layers "github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

func (s *Service) snapshotter() snapshots.Snapshotter {
	return s.c.Client.SnapshotService(s.c.Snapshotter)
}

// unpackLayers creates the snapshots of an image's layers and flushes them to disk. It skips the given number of bottom layers, which are
// unpacked already. The lease of ctx protects the snapshots. A power cut before the flush may damage them; see dropUnfinished.
func (s *Service) unpackLayers(ctx context.Context, p *pickedImage, unpacked int, src content.Provider) error {
	chain := p.chainIDs()
	for i := unpacked; i < len(chain); i++ {
		parent := ""
		if i > 0 {
			parent = chain[i-1].String()
		}
		if err := s.unpackLayer(ctx, p.layers[i], p.image.RootFS.DiffIDs[i], parent, chain[i].String(), src); err != nil {
			return fmt.Errorf("unpack layer %d (%s): %w", i+1, p.layers[i].Digest, err)
		}
	}
	return s.flush()
}

// flush writes unpacked layers to disk, including those of other images that are not flushed yet.
func (s *Service) flush() error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	if !s.dirty.Swap(false) {
		return nil
	}
	err := func() error {
		f, err := os.Open(s.c.Root)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Syncfs(int(f.Fd()))
	}()
	if err != nil {
		s.dirty.Store(true)
		return fmt.Errorf("flush image layers to disk: %w", err)
	}
	return nil
}

// countUnpacked returns how many layers of an image exist, counted from the bottom layer. It adds the
// topmost existing layer to the lease of ctx.
func (s *Service) countUnpacked(ctx context.Context, chain []digest.Digest) (int, error) {
	sn := s.snapshotter()
	for i := len(chain); i > 0; i-- {
		id := chain[i-1].String()
		_, err := sn.Stat(ctx, id)
		if err == nil {
			if err := s.holdSnapshot(ctx, id); err != nil {
				return 0, err
			}
			_, err = sn.Stat(ctx, id) // the garbage collector may have removed it before it was in the lease
		}
		switch {
		case err == nil:
			return i, nil
		case !errdefs.IsNotFound(err):
			return 0, fmt.Errorf("snapshot %s: %w", id, err)
		}
	}
	return 0, nil
}

func (s *Service) unpackLayer(
	ctx context.Context, layer ocispec.Descriptor, diffID digest.Digest, parent, id string, src content.Provider,
) (err error) {
	blob, err := src.ReaderAt(ctx, layer) // may wait for a download
	if err != nil {
		return err
	}
	defer blob.Close()
	if err := checkMediaType(layer.MediaType); err != nil {
		return err
	}
	at := &allocation{shared: &s.shared}
	defer at.releaseAll()
	if err := at.waitForTurn(ctx); err != nil {
		return err
	}
	sn := s.snapshotter()
	key := fmt.Sprintf(snapshots.UnpackKeyFormat, rand.Text(), id)
	mounts, err := sn.Prepare(ctx, key, parent)
	if err != nil {
		return fmt.Errorf("prepare snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			s.discardSnapshot(ctx, key)
		}
	}()
	got, err := s.extractLayer(ctx, at, content.NewReader(blob), mounts, parent == "")
	if err != nil {
		return err
	}
	if got != diffID {
		return fmt.Errorf("its digest is %s, but the image's config has %s: %w", got, diffID, errdefs.ErrInvalidArgument)
	}
	s.dirty.Store(true)
	err = sn.Commit(ctx, id, key)
	if errdefs.IsAlreadyExists(err) { // another import has created it
		s.discardSnapshot(ctx, key)
		return s.holdSnapshot(ctx, id)
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
