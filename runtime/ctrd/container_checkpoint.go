package ctrd

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/pkg/archive"
	contfs "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// checkpointTimeout is the default timeout of a checkpoint.
const checkpointTimeout = 10 * time.Minute

// CheckpointContainer writes the memory and the changed files of a running container to a tar
// archive at Location (KEP-2008). The file must not exist, and is created only when it is complete. The container continues to run. The OCI
// runtime calls CRIU. On a host without CRIU the error is ErrNotImplemented. Only root may read the
// archive, because it includes secrets from the container's memory.
//
//	checkpoint/      CRIU's images
//	config.dump      the container's identity, in the format of CRI-O and containerd
//	spec.dump        its OCI specification
//	rootfs-diff.tar  its changes to the image
func (r *Runtime) CheckpointContainer(ctx context.Context, req *api.CheckpointContainerRequest) (*api.CheckpointContainerResponse, error) {
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := r.checkpoint(ctx, c, req); err != nil {
		return nil, fmt.Errorf("checkpoint container %s: %w", c.rec.ID, err)
	}
	return &api.CheckpointContainerResponse{}, nil
}

func (r *Runtime) checkpoint(ctx context.Context, c *container, req *api.CheckpointContainerRequest) (err error) {
	if _, err := exec.LookPath("criu"); err != nil {
		return fmt.Errorf("this host has no CRIU: install criu: %w", errdefs.ErrNotImplemented)
	}
	if !filepath.IsAbs(req.GetLocation()) {
		return fmt.Errorf("location %q is not an absolute path: %w", req.GetLocation(), errdefs.ErrInvalidArgument)
	}
	if err := r.ops.LockContext(ctx, c.rec.ID); err != nil {
		return err
	}
	defer r.ops.Unlock(c.rec.ID)
	r.mu.Lock()
	running, s := c.state() == api.ContainerState_CONTAINER_RUNNING, r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if !running || s == nil {
		return fmt.Errorf("it is not running: %w", errdefs.ErrFailedPrecondition)
	}
	if s.tasks != nil {
		return fmt.Errorf("a containerd shim runs it: %w", errdefs.ErrNotImplemented)
	}
	if s.userMappings() != nil {
		return fmt.Errorf("its pod has a user namespace: %w", errdefs.ErrNotImplemented)
	}
	limit := checkpointTimeout
	if t := req.GetTimeout(); t > 0 {
		limit = time.Duration(t) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := os.Lstat(req.GetLocation()); err == nil { // the rename below would fail
		return &fs.PathError{Op: "create", Path: req.GetLocation(), Err: fs.ErrExist}
	}
	// The images can be as large as the container's memory. They are written next to the archive,
	// because /tmp may be a tmpfs.
	dir, err := os.MkdirTemp(filepath.Dir(req.GetLocation()), unfinishedPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mounts.RemoveAll(dir)) }()
	content, archive := filepath.Join(dir, "content"), filepath.Join(dir, "archive.tar")
	if err := r.dump(ctx, s, c, content); err != nil {
		return err
	}
	if err := writeArchive(ctx, archive, content); err != nil {
		return err
	}
	return unix.Renameat2(unix.AT_FDCWD, archive, unix.AT_FDCWD, req.GetLocation(), unix.RENAME_NOREPLACE)
}

// unfinishedPrefix is the name prefix of the directories of unfinished checkpoints.
const unfinishedPrefix = ".checkpoint-"

// RemoveUnfinishedCheckpoints removes from a directory the checkpoints that were interrupted by the end of the process. No checkpoint
// may be running. The directory need not exist.
func RemoveUnfinishedCheckpoints(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinishedPrefix) {
			err = errors.Join(err, mounts.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// writeArchive writes the files of dir to a new tar archive at path.
func writeArchive(ctx context.Context, path, dir string) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(writeTree(ctx, out, dir), out.Close())
}

// dump writes the parts of a checkpoint to dir.
func (r *Runtime) dump(ctx context.Context, s *sandbox, c *container, dir string) error {
	images, work := filepath.Join(dir, "checkpoint"), filepath.Join(r.bundlePath(c.rec.ID), "criu")
	for _, d := range []string{images, work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	defer mounts.RemoveAll(work)
	text, err := ociCommand(ctx, s.oci, "checkpoint", "--image-path", images, "--work-path", work,
		"--leave-running", "--file-locks", c.rec.ID).CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
	}
	spec, err := os.ReadFile(filepath.Join(r.bundlePath(c.rec.ID), "config.json"))
	if err != nil {
		return err
	}
	st := r.containerStatus(c)
	config, err := json.Marshal(map[string]any{
		"id": c.rec.ID, "name": st.GetMetadata().GetName(),
		"rootfsImage": st.GetImage().GetUserSpecifiedImage(), "rootfsImageRef": st.GetImageRef(),
		"rootfsImageName": st.GetImage().GetImage(),
		"runtime":         filepath.Base(s.oci.Path), "createdTime": c.rec.CreatedAt, "checkpointedTime": time.Now(),
	})
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{"spec.dump": spec, "config.dump": config} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return r.dumpChanges(ctx, c, filepath.Join(dir, "rootfs-diff.tar"))
}

// dumpChanges writes the differences between a container's files and its image as a layer.
func (r *Runtime) dumpChanges(ctx context.Context, c *container, path string) (err error) {
	upper := filepath.Join(r.containerDir(c.rec.ID), "upper")
	if _, err := os.Stat(upper); errors.Is(err, fs.ErrNotExist) {
		return nil // the snapshotter does not use overlays
	}
	base := filepath.Join(r.bundlePath(c.rec.ID), "criu", "image")
	if err := r.mountImage(ctx, c.rec.Chain, base, "", nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount(base)) }()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := archive.NewChangeWriter(out, upper)
	return errors.Join(contfs.DiffDirChanges(ctx, base, upper, contfs.DiffSourceOverlayFS, w.HandleChange), w.Close(), out.Close())
}

// writeTree archives the regular files and directories below dir. No other process may write to
// dir.
func writeTree(ctx context.Context, to io.Writer, dir string) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		h.Name = name
		if d.IsDir() {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
	return errors.Join(err, w.Close())
}
