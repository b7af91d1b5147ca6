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

// A sandbox may have a user namespace of its own (KEP-127): then its root is one of the
// host's many IDs. The namespace is pinned with the others, which belong to it, and all
// containers join it. Nothing on the disk has the IDs of a range but what containers write
// above the layers of their images:
//
//	layers, 0..65535 --mounts.Shift--> 65536..131071 --overlay--> rootfs
//	volumes, 0..65535 -------the OCI runtime's "idmap"----------> in the container 0..65535
//
// https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/

// usersOf reads what a sandbox or container says of its users; nil: they are the host's.
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
		return nil, fmt.Errorf("the user namespace is to be the node's, and cannot map IDs: %w", errdefs.ErrInvalidArgument)
	case u.GetMode() != api.NamespaceMode_POD:
		return nil, fmt.Errorf("the mode of the user namespace is %v; POD and NODE are possible: %w", u.GetMode(), errdefs.ErrInvalidArgument)
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

// noID is what the kernel takes for no ID.
const noID = 1<<32 - 1

// idsOf wants one range, from ID 0 inside on, that has no ID of the host's root.
func idsOf(m []*api.IDMapping) (namespace.IDs, error) {
	switch {
	case len(m) != 1:
		return namespace.IDs{}, fmt.Errorf("there must be one mapping, not %d", len(m))
	case m[0].GetContainerId() != 0:
		return namespace.IDs{}, fmt.Errorf("the mapping begins at %d inside, not at 0", m[0].GetContainerId())
	case m[0].GetLength() == 0:
		return namespace.IDs{}, errors.New("the mapping is empty")
	case m[0].GetHostId() == 0:
		return namespace.IDs{}, errors.New("the mapping has the host's root in it")
	case uint64(m[0].GetHostId())+uint64(m[0].GetLength()) > noID:
		return namespace.IDs{}, fmt.Errorf("the mapping ends beyond the last ID, %d", uint32(noID-1))
	}
	return namespace.IDs{First: m[0].GetHostId(), Count: m[0].GetLength()}, nil
}

// users are a sandbox's own; nil: they are the host's. They were checked when it was made.
func (s *sandbox) users() *namespace.Users {
	u, _ := usersOf(s.namespaces())
	return u
}

// checkUsers refuses a user namespace that a sandbox cannot have here: to run without
// would take from a pod the isolation that it asks for.
func (r *Runtime) checkUsers(s *sandbox) error {
	u, err := usersOf(s.namespaces())
	if u == nil || err != nil {
		return err
	}
	switch ns := s.namespaces(); {
	case ns.GetPid() == api.NamespaceMode_NODE:
		return fmt.Errorf("a user namespace cannot go with the host's processes: %w", errdefs.ErrInvalidArgument)
	case ns.GetIpc() == api.NamespaceMode_NODE:
		return fmt.Errorf("a user namespace cannot go with the host's IPC: %w", errdefs.ErrInvalidArgument)
	case s.tasks != nil:
		return fmt.Errorf("runtime handler %q runs a containerd shim, with which there are no user namespaces here: %w", s.rec.Handler, errdefs.ErrNotImplemented)
	case !r.abilities.Of(s.oci.Path).Users:
		return fmt.Errorf("%s has no user namespaces with idmapped mounts: install runc 1.2 or crun 1.9, or later: %w", s.oci.Path, errdefs.ErrNotImplemented)
	}
	if err := r.shifts(); err != nil {
		return fmt.Errorf("user namespaces do not work here: %w: %w", err, errdefs.ErrNotImplemented)
	}
	return nil
}

// checkMember refuses a container whose users are not its sandbox's.
func checkMember(s *sandbox, c *api.ContainerConfig) error {
	its, err := usersOf(c.GetLinux().GetSecurityContext().GetNamespaceOptions())
	if err != nil {
		return err
	}
	if its != nil && c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == api.NamespaceMode_NODE {
		return fmt.Errorf("a user namespace cannot go with the host's processes: %w", errdefs.ErrInvalidArgument)
	}
	if of := s.users(); (its == nil) != (of == nil) || its != nil && *its != *of {
		return fmt.Errorf("its user namespace is another one than its sandbox's: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkIDs refuses IDs that a sandbox's user namespace does not have.
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

// mappingFault says why a mount cannot have the ID mappings that it asks for; "": it can. The
// only mappings that a sandbox offers are those of its own user namespace.
func mappingFault(s *sandbox, m *api.Mount) string {
	if len(m.GetUidMappings())+len(m.GetGidMappings()) == 0 {
		return ""
	}
	uids, err1 := idsOf(m.GetUidMappings())
	gids, err2 := idsOf(m.GetGidMappings())
	if u := s.users(); u == nil || err1 != nil || err2 != nil || u.UIDs != uids || u.GIDs != gids {
		return "is to be mapped to other users than those of its sandbox's user namespace"
	}
	return ""
}

// openUsers opens the pinned user namespace of a sandbox; nil: it has none.
func (r *Runtime) openUsers(s *sandbox) (*os.File, error) {
	if s.users() == nil {
		return nil, nil
	}
	return os.Open(filepath.Join(r.dirs.pins, s.rec.ID, namespace.User))
}

// makeBundle makes a bundle. Only root of the host may enter it and, if the pod has a user
// namespace, root of that: it must reach the root file system in the bundle. So the directory
// belongs to the group that root of the namespace has on the host.
func (r *Runtime) makeBundle(s *sandbox, id string) error {
	bundle, u := r.bundle(id), s.users()
	err := os.MkdirAll(bundle, 0o700)
	if err != nil || u == nil {
		return err
	}
	return errors.Join(os.Chmod(r.dirs.bundles, 0o711), os.Chown(bundle, 0, int(u.GIDs.First)), os.Chmod(bundle, 0o710))
}

// closeBundles makes bundles of an earlier islet, which any user of the host could enter,
// private.
func (r *Runtime) closeBundles() error {
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

// give makes what is in a file or directory of a sandbox's the property of its root.
func (s *sandbox) give(paths ...string) error {
	u := s.users()
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

// giveStreams makes the pipes of an OCI runtime's process, before it has run a command in
// a container, the property of the container's root: else the command could not open
// /dev/stdout.
func (r *Runtime) giveStreams(c *container, pid int) {
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if s == nil {
		return
	}
	for fd := range 3 {
		path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
		if st, err := os.Stat(path); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
			continue // it has ended; or it is a terminal, or /dev/null
		}
		if u := s.users(); u != nil {
			os.Chown(path, int(u.UIDs.First), int(u.GIDs.First)) // fails if it has ended
		}
	}
}

// shifted is where in a bundle the layers of an image are mounted for as long as an
// overlay is made of them.
const shifted = "layers"

// shift mounts layers at a place where their owners are those of a user namespace, until
// done. All layers are in one directory of the snapshotter's.
func shift(layers []string, at string, users *os.File) (out []string, done func() error, err error) {
	all := filepath.Dir(filepath.Dir(layers[0]))
	for _, l := range layers {
		name, err := filepath.Rel(all, l)
		if err != nil || !filepath.IsLocal(name) {
			return nil, nil, fmt.Errorf("layers %s and %s are not in one place", layers[0], l)
		}
		out = append(out, filepath.Join(at, name))
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, nil, err
	}
	if err := mounts.Shift(all, at, users, true); err != nil {
		return nil, nil, err
	}
	return out, func() error { return unmount(at) }, nil
}

// tryShift tries whether root file systems can have their owners shifted: by the kernel,
// and by the file system that they are in. (Overlays take shifted layers since 5.19.)
func (r *Runtime) tryShift() (err error) {
	id := "users"
	dir, bundle := r.containerDir(id), r.bundle(id) // what is left of them is swept
	defer func() { err = errors.Join(err, r.removeBundle(id), mounts.RemoveAll(dir)) }()
	layer, target := filepath.Join(dir, "layers", "1", "fs"), filepath.Join(bundle, rootfs)
	for _, d := range []string{layer, target} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	all := namespace.IDs{First: 1 << 16, Count: 1 << 16}
	users, err := namespace.NewUsers(namespace.Users{UIDs: all, GIDs: all})
	if err != nil {
		return err
	}
	defer users.Close()
	if r.c.Daemon.Snapshotter() != daemon.Overlay {
		return mounts.Shift(layer, target, users, false)
	}
	layers, done, err := shift([]string{layer}, filepath.Join(bundle, shifted), users)
	if err != nil {
		return err
	}
	m, err := overlayMount(dir, layers)
	if err == nil {
		err = mount.All([]mount.Mount{m}, target)
	}
	if err := errors.Join(err, done()); err != nil {
		return fmt.Errorf("mount an overlay of layers with shifted owners (Linux 5.19 can): %w", err)
	}
	return nil
}
