package ctrd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/namespace"
)

// A sandbox may have its own user namespace (KEP-127), in which root is an unprivileged user of the
// host. The user namespace owns the sandbox's other namespaces and is pinned together with them.
// All containers join it. Mapped IDs are stored on disk only for files that containers write to
// their writable layers:
//
//	layers, 0..65535 --mounts.BindIDMapped--> 65536..131071 --overlay--> rootfs
//	volumes, 0..65535 -------the OCI runtime's "idmap"----------> in the container 0..65535
//
// https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/

// usersOf returns the ID mappings in the options of a sandbox or container. It returns nil for
// the host's user namespace.
func usersOf(o *api.NamespaceOption) (*namespace.Users, error) {
	u := o.GetUsernsOptions()
	if u == nil {
		return nil, nil
	}
	mapped := len(u.GetUids())+len(u.GetGids()) > 0
	switch {
	case u.GetMode() == api.NamespaceMode_NODE && !mapped:
		return nil, nil
	case u.GetMode() == api.NamespaceMode_NODE:
		return nil, fmt.Errorf("a user namespace in mode NODE cannot map IDs: %w", errdefs.ErrInvalidArgument)
	case u.GetMode() != api.NamespaceMode_POD:
		return nil, fmt.Errorf("invalid mode %v of the user namespace: it must be POD or NODE: %w",
			u.GetMode(), errdefs.ErrInvalidArgument)
	}
	uids, err := idsOf(u.GetUids())
	if err != nil {
		return nil, fmt.Errorf("UIDs of the user namespace: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	gids, err := idsOf(u.GetGids())
	if err != nil {
		return nil, fmt.Errorf("GIDs of the user namespace: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return &namespace.Users{UIDs: uids, GIDs: gids}, nil
}

// noID is the kernel's value for a missing ID.
const noID = 1<<32 - 1

// idsOf validates a mapping. A valid mapping is a single range that starts at ID 0 inside the
// namespace and excludes the host's root.
func idsOf(m []*api.IDMapping) (namespace.IDs, error) {
	switch {
	case len(m) != 1:
		return namespace.IDs{}, fmt.Errorf("there are %d mappings; there must be one", len(m))
	case m[0].GetContainerId() != 0:
		return namespace.IDs{}, fmt.Errorf("the mapping starts at ID %d inside the namespace, not at 0", m[0].GetContainerId())
	case m[0].GetLength() == 0:
		return namespace.IDs{}, errors.New("the mapping is empty")
	case m[0].GetHostId() == 0:
		return namespace.IDs{}, errors.New("the mapping includes the host's root")
	case uint64(m[0].GetHostId())+uint64(m[0].GetLength()) > noID:
		return namespace.IDs{}, fmt.Errorf("the mapping ends beyond the last ID, %d", uint32(noID-1))
	}
	return namespace.IDs{First: m[0].GetHostId(), Count: m[0].GetLength()}, nil
}

// userMappings returns the sandbox's ID mappings, or nil for the host's user namespace. RunPodSandbox has
// validated them.
func (s *sandbox) userMappings() *namespace.Users {
	u, _ := usersOf(s.namespaces())
	return u
}

// checkUsers rejects a user namespace that this host cannot provide, because the pod would lack the
// isolation that it requests.
func (r *Runtime) checkUsers(s *sandbox) error {
	u, err := usersOf(s.namespaces())
	if u == nil || err != nil {
		return err
	}
	switch ns := s.namespaces(); {
	case ns.GetPid() == api.NamespaceMode_NODE:
		return fmt.Errorf("a user namespace cannot be combined with the host's PID namespace: %w", errdefs.ErrInvalidArgument)
	case ns.GetIpc() == api.NamespaceMode_NODE:
		return fmt.Errorf("a user namespace cannot be combined with the host's IPC namespace: %w", errdefs.ErrInvalidArgument)
	case s.tasks != nil:
		return fmt.Errorf("runtime handler %q uses a containerd shim, for which user namespaces are not supported: %w",
			s.rec.Handler, errdefs.ErrNotImplemented)
	case !r.abilities.Get(s.oci.Path).Users:
		return fmt.Errorf("%s does not support user namespaces with idmapped mounts: install runc 1.2 or crun 1.9, or later: %w",
			s.oci.Path, errdefs.ErrNotImplemented)
	}
	if err := r.checkShift(); err != nil {
		return fmt.Errorf("user namespaces do not work on this host: %w: %w", err, errdefs.ErrNotImplemented)
	}
	return nil
}

// checkUserNamespace rejects a container whose user namespace differs from its sandbox's.
func checkUserNamespace(s *sandbox, c *api.ContainerConfig) error {
	users, err := usersOf(c.GetLinux().GetSecurityContext().GetNamespaceOptions())
	if err != nil {
		return err
	}
	if users != nil && c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == api.NamespaceMode_NODE {
		return fmt.Errorf("a user namespace cannot be combined with the host's PID namespace: %w", errdefs.ErrInvalidArgument)
	}
	if pod := s.userMappings(); (users == nil) != (pod == nil) || users != nil && *users != *pod {
		return fmt.Errorf("its user namespace differs from its sandbox's: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkIDs rejects IDs that a sandbox's user namespace does not map.
func checkIDs(u specs.User, users *namespace.Users) error {
	if users == nil {
		return nil
	}
	if u.UID >= users.UIDs.Count {
		return fmt.Errorf("user %d is not in the pod's user namespace, which has the IDs from 0 to %d", u.UID, users.UIDs.Count-1)
	}
	for _, g := range append(slices.Clone(u.AdditionalGids), u.GID) {
		if g >= users.GIDs.Count {
			return fmt.Errorf("group %d is not in the pod's user namespace, which has the IDs from 0 to %d", g, users.GIDs.Count-1)
		}
	}
	return nil
}

// mappingFault returns the reason why the ID mappings of a mount are invalid, or "". The only valid
// mappings are the mappings of the sandbox's user namespace.
func mappingFault(s *sandbox, m *api.Mount) string {
	if len(m.GetUidMappings())+len(m.GetGidMappings()) == 0 {
		return ""
	}
	uids, err1 := idsOf(m.GetUidMappings())
	gids, err2 := idsOf(m.GetGidMappings())
	if u := s.userMappings(); u == nil || err1 != nil || err2 != nil || u.UIDs != uids || u.GIDs != gids {
		return "has other ID mappings than its sandbox's user namespace"
	}
	return ""
}

// openUsers opens the pinned user namespace of a sandbox. The file is nil if the sandbox has none.
func (r *Runtime) openUsers(s *sandbox) (*os.File, error) {
	if s.userMappings() == nil {
		return nil, nil
	}
	return os.Open(filepath.Join(r.dirs.pins, s.rec.ID, namespace.User))
}

// makeBundle creates a bundle. The host's root may enter it. If the pod has a user namespace, the
// root of that namespace may enter it too, to reach the root file system in the bundle. Therefore
// the directory's group is the GID of that root user on the host.
func (r *Runtime) makeBundle(s *sandbox, id string) error {
	bundle, u := r.bundlePath(id), s.userMappings()
	err := os.MkdirAll(bundle, 0o700)
	if err != nil || u == nil {
		return err
	}
	return errors.Join(os.Chmod(r.dirs.bundles, 0o711), os.Chown(bundle, 0, int(u.GIDs.First)), os.Chmod(bundle, 0o710))
}

// restrictBundles makes the bundles of an earlier version private. That version let any user of the
// host enter them.
func (r *Runtime) restrictBundles() error {
	entries, err := os.ReadDir(r.dirs.bundles)
	for _, e := range entries {
		path := filepath.Join(r.dirs.bundles, e.Name())
		if st, err := os.Lstat(path); err != nil || st.Mode().Perm()&0o007 == 0 {
			continue
		}
		if err := os.Chmod(path, 0o700); err != nil {
			return err
		}
	}
	return err
}

// chown changes the owner of a sandbox's files to the root of its user namespace.
func (s *sandbox) chown(paths ...string) error {
	u := s.userMappings()
	if u == nil {
		return nil
	}
	for _, path := range paths {
		if err := os.Lchown(path, int(u.UIDs.First), int(u.GIDs.First)); err != nil {
			return err
		}
	}
	return nil
}

// chownStreams gives the pipes of an OCI runtime process to the container's root, before that
// process runs a command in the container. Otherwise the command could not open /dev/stdout.
func (r *Runtime) chownStreams(c *container, pid int) {
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if s == nil {
		return
	}
	for fd := range 3 {
		path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
		if st, err := os.Stat(path); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
			continue // the process has ended, or the file is a terminal or /dev/null
		}
		if u := s.userMappings(); u != nil {
			os.Chown(path, int(u.UIDs.First), int(u.GIDs.First)) // fails if the process has ended
		}
	}
}

// shiftedLayers is the directory in a bundle where the layers of an image are mounted with mapped
// owners until the overlay of these layers is mounted.
const shiftedLayers = "layers"

// shiftLayers mounts layers below a directory, with owners mapped to a user namespace. The returned function unmounts them. All layers must
// be in one directory of the snapshotter.
func shiftLayers(layers []string, at string, users *os.File) (out []string, done func() error, err error) {
	dir := filepath.Dir(filepath.Dir(layers[0]))
	for _, l := range layers {
		name, err := filepath.Rel(dir, l)
		if err != nil || !filepath.IsLocal(name) {
			return nil, nil, fmt.Errorf("layers %s and %s are not in the same directory", layers[0], l)
		}
		out = append(out, filepath.Join(at, name))
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, nil, err
	}
	if err := mounts.BindIDMapped(dir, at, users, true); err != nil {
		return nil, nil, err
	}
	return out, func() error { return unmount(at) }, nil
}

// tryShift tests whether the kernel and the file system can map the owners of root file systems.
// Overlays accept idmapped layers since Linux 5.19.
func (r *Runtime) tryShift() (err error) {
	id := "users"
	dir, bundle := r.containerDir(id), r.bundlePath(id) // if this process dies, the next process removes them
	defer func() { err = errors.Join(err, r.removeBundle(id), mounts.RemoveAll(dir)) }()
	layer, target := filepath.Join(dir, "layers", "1", "fs"), filepath.Join(bundle, rootfsDir)
	for _, d := range []string{layer, target} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	ids := namespace.IDs{First: 1 << 16, Count: 1 << 16}
	users, err := namespace.NewUsers(namespace.Users{UIDs: ids, GIDs: ids})
	if err != nil {
		return err
	}
	defer users.Close()
	if r.c.Daemon.Snapshotter() != daemon.Overlay {
		return mounts.BindIDMapped(layer, target, users, false)
	}
	layers, done, err := shiftLayers([]string{layer}, filepath.Join(bundle, shiftedLayers), users)
	if err != nil {
		return err
	}
	m, err := overlayMount(dir, layers)
	if err == nil {
		err = mount.All([]mount.Mount{m}, target)
	}
	if err := errors.Join(err, done()); err != nil {
		return fmt.Errorf("mount an overlay of layers with mapped owners (needs Linux 5.19): %w", err)
	}
	return nil
}
