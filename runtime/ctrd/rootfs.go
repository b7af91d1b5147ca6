package ctrd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/selinux"
	"github.com/islet-edge/islet/runtime/tree"
)

// rootfsDir is the directory in a bundle where the root file system is mounted until the container has
// started.
const rootfsDir = "rootfs"

// viewPrefix is the prefix of the keys of views. A view is a snapshot that keeps the layers of an
// image while containers use them. There is one view for each image.
const viewPrefix = "islet-view-"

// layerCache caches the layer directories of chain IDs. The top layer comes first. The lock of a chain ID is held while its view is created
// or removed. mu is not: containerd may let other calls wait while it removes snapshots.
type layerCache struct {
	chains opLocks

	mu       sync.Mutex
	layers   map[string][]string
	creating map[string]int // number of uses by containers that are being created and are not in Runtime.containers yet
}

// hold keeps the view of a chain ID for a container that is being created.
func (l *layerCache) hold(chain string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.creating == nil {
		l.creating = map[string]int{}
	}
	l.creating[chain]++
}

// release ends the holds of a container that was created, or whose creation has failed.
func (l *layerCache) release(chains ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, chain := range chains {
		if l.creating[chain]--; l.creating[chain] == 0 {
			delete(l.creating, chain)
		}
	}
}

// set sets the layers of a chain ID, or removes them if they are nil.
func (l *layerCache) set(chain string, layers []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.layers == nil {
		l.layers = map[string][]string{}
	}
	if l.layers[chain] = layers; layers == nil {
		delete(l.layers, chain)
	}
}

// mountRootfs mounts a container's root file system at <bundle>/rootfs. It is an overlay of the image's layers with an upper directory, or
// a copy of the layers if overlayfs does not work. The files get the SELinux label, unless it is "". If there is a user namespace, the
// owners of the files are mapped to it.
func (r *Runtime) mountRootfs(ctx context.Context, c *container, label string, users *os.File) (err error) {
	dir, target := r.containerDir(c.rec.ID), filepath.Join(r.bundlePath(c.rec.ID), rootfsDir)
	layers, err := r.layersOf(ctx, c.rec.Chain)
	if err != nil {
		return fmt.Errorf("list the image's layers: %w", err)
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	var m mount.Mount
	if r.c.Daemon.Snapshotter() == daemon.Overlay && len(layers) > 0 {
		if users != nil {
			var done func() error
			if layers, done, err = shiftLayers(layers, filepath.Join(r.bundlePath(c.rec.ID), shiftedLayers), users); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
		} else {
			layers = r.withMountPoints(layers)
		}
		m, err = overlayMount(dir, layers)
		if label != "" {
			m.Options = append(m.Options, selinux.MountOption(label))
		}
	} else {
		if m, err = copyMount(ctx, dir, layers); err == nil {
			err = r.selinux.Relabel(m.Source, label)
		}
	}
	if err != nil {
		return err
	}
	if users != nil && m.Type == "bind" {
		return mounts.BindIDMapped(m.Source, target, users, false)
	}
	if err := mount.All([]mount.Mount{m}, target); err != nil {
		return fmt.Errorf("mount root file system: %w", err)
	}
	return nil
}

func overlayMount(dir string, layers []string) (mount.Mount, error) {
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return mount.Mount{}, err
		}
	}
	if err := copyOwner(layers[0], upper); err != nil {
		return mount.Mount{}, err
	}
	opts := append([]string{"workdir=" + work, "upperdir=" + upper}, overlayLowers(layers)...)
	return mount.Mount{Type: "overlay", Source: "overlay", Options: append(opts, overlayOptions()...)}, nil
}

// overlayLowers returns the lowerdir options for the layers. The first element of layers is the top layer.
func overlayLowers(layers []string) []string {
	opts := []string{"lowerdir=" + strings.Join(layers, ":")}
	if _, err := os.Stat("/sys/module/overlay/parameters/index"); err == nil {
		opts = append(opts, "index=off")
	}
	return opts
}

// copyMount copies the image and returns a bind mount of the copy. It is for snapshotters whose
// layers are complete trees. The size of the copy is limited only by the image. This is acceptable
// because unpacking already used as much space for each layer.
func copyMount(ctx context.Context, dir string, layers []string) (mount.Mount, error) {
	root := filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return mount.Mount{}, err
	}
	if len(layers) > 0 {
		if err := copyTree(ctx, layers[0], root); err != nil {
			return mount.Mount{}, fmt.Errorf("copy the image: %w", err)
		}
	}
	return mount.Mount{Type: "bind", Source: root, Options: []string{"bind", "rprivate", "rw"}}, nil
}

func copyTree(ctx context.Context, from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Open(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	return tree.Copy(ctx, src, dst, &tree.Room{Bytes: math.MaxUint64, Files: math.MaxUint64})
}

// copyOwner copies the owner and the mode of one directory to another.
func copyOwner(from, to string) error {
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	sys := st.Sys().(*syscall.Stat_t)
	return errors.Join(os.Chown(to, int(sys.Uid), int(sys.Gid)), os.Chmod(to, st.Mode().Perm()))
}

// layersOf returns the layer directories of a chain ID. A view keeps them in place while a
// container uses the chain.
func (r *Runtime) layersOf(ctx context.Context, chain string) ([]string, error) {
	if chain == "" {
		return nil, nil
	}
	if err := r.views.chains.LockContext(ctx, chain); err != nil {
		return nil, err
	}
	defer r.views.chains.Unlock(chain)
	r.views.mu.Lock()
	cached := r.views.layers[chain]
	r.views.mu.Unlock()
	if cached != nil {
		return cached, nil
	}
	ctx = namespaces.WithNamespace(ctx, daemon.Namespace)
	key := viewPrefix + chain
	ms, err := r.snap.View(ctx, key, chain, snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "true"}))
	if errdefs.IsAlreadyExists(err) {
		ms, err = r.snap.Mounts(ctx, key)
	}
	if err != nil {
		return nil, err
	}
	layers := layerDirs(ms)
	if len(layers) == 0 {
		return nil, fmt.Errorf("snapshot %s has mounts of an unknown kind: %v", chain, ms)
	}
	r.views.set(chain, layers)
	return layers, nil
}

// layerDirs returns the directories in the mounts of a view. The mount is a bind mount of a single
// layer, or an overlay.
func layerDirs(ms []mount.Mount) []string {
	if len(ms) != 1 {
		return nil
	}
	if ms[0].Type == "bind" {
		return []string{ms[0].Source}
	}
	for _, o := range ms[0].Options {
		if dirs, ok := strings.CutPrefix(o, "lowerdir="); ok {
			return strings.Split(dirs, ":")
		}
	}
	return nil
}

// dropView removes the view of a chain that no container uses any more. A container is in r.containers before its holds are released, so
// either the holds or r.containers have it.
func (r *Runtime) dropView(ctx context.Context, chain string) error {
	if err := r.views.chains.LockContext(ctx, chain); err != nil {
		return err
	}
	defer r.views.chains.Unlock(chain)
	r.views.mu.Lock()
	used := chain == "" || r.views.creating[chain] > 0
	r.views.mu.Unlock()
	r.mu.Lock()
	for _, c := range r.containers {
		used = used || c.rec.Chain == chain || slices.Contains(c.rec.Volumes, chain)
	}
	r.mu.Unlock()
	if used {
		return nil
	}
	r.views.set(chain, nil)
	err := r.snap.Remove(namespaces.WithNamespace(ctx, daemon.Namespace), viewPrefix+chain)
	return ignoreNotFound(err)
}

// dropViewsOf removes the views of a removed container's image and of the images that the container
// mounted. Views that other containers use are kept.
func (r *Runtime) dropViewsOf(ctx context.Context, c *container) error {
	err := r.dropView(ctx, c.rec.Chain)
	for _, chain := range c.rec.Volumes {
		err = errors.Join(err, r.dropView(ctx, chain))
	}
	return err
}

// dropViews removes all views that no container uses.
func (r *Runtime) dropViews(ctx context.Context) error {
	var chains []string
	err := r.snap.Walk(namespaces.WithNamespace(ctx, daemon.Namespace), func(_ context.Context, i snapshots.Info) error {
		if chain, ok := strings.CutPrefix(i.Name, viewPrefix); ok {
			chains = append(chains, chain)
		}
		return nil
	})
	for _, c := range chains {
		err = errors.Join(err, r.dropView(ctx, c))
	}
	return err
}
