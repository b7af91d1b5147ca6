package ctrd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/image"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/namespace"
	"github.com/islet-edge/islet/runtime/ocispec"
	"github.com/islet-edge/islet/runtime/selinux"
)

func (r *Runtime) containerDir(id string) string { return filepath.Join(r.dirs.containers, id) }

func (r *Runtime) bundlePath(id string) string { return filepath.Join(r.dirs.bundles, id) }

// CreateContainer prepares a container's root file system and specification. If a container with
// the same identity exists, CreateContainer returns the ID of that container.
func (r *Runtime) CreateContainer(ctx context.Context, req *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	cfg := req.GetConfig()
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := r.checkOwner(ctx, s, "create container "+cfg.GetMetadata().GetName()); err != nil {
		return nil, err
	}
	id, err := containerID(r.boot, s.rec.ID, cfg)
	if err != nil {
		return nil, err
	}
	id = r.freeID(id)
	if err := r.ops.LockContext(ctx, id); err != nil {
		return nil, err
	}
	defer r.ops.Unlock(id)
	if _, err := r.findContainer(id); err == nil {
		return &api.CreateContainerResponse{ContainerId: id}, nil
	}
	if err := r.restoreRun(); err != nil {
		return nil, fmt.Errorf("create container %s: %w", cfg.GetMetadata().GetName(), err)
	}
	if !r.isUsable(s) {
		return nil, fmt.Errorf("create container %s: sandbox %s is not ready: %w",
			cfg.GetMetadata().GetName(), s.rec.ID, errdefs.ErrFailedPrecondition)
	}
	ref := cfg.GetImage().GetImage()
	img, err := r.c.Images.Resolve(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", cfg.GetMetadata().GetName(), err)
	}
	packed, err := encode(withoutSecrets(cfg))
	if err != nil {
		return nil, err
	}
	c := &container{
		rec: containerRecord{
			Format: plainFormat, ID: id, Sandbox: s.rec.ID, Config: packed,
			Image: img.RepoDigest, ImageID: img.ID, Chain: img.ChainID, Boot: r.bootID,
			StopSignal: img.Config.Config.StopSignal, CreatedAt: time.Now(),
		},
		config: proto.CloneOf(cfg), done: make(chan struct{}),
	}
	if err = convertDeprecatedProfiles(c.config); err == nil {
		err = r.createContainer(ctx, s, c, img)
	}
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", cfg.GetMetadata().GetName(), err)
	}
	r.notifySubscribers(s.rec.ID, id, api.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &api.CreateContainerResponse{ContainerId: id}, nil
}

// createContainer creates c's directories and adds c to r.containers. On failure it removes
// everything that it created.
func (r *Runtime) createContainer(ctx context.Context, s *sandbox, c *container, img image.Resolved) (err error) {
	dir, bundle := r.containerDir(c.rec.ID), r.bundlePath(c.rec.ID)
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
			defer cancel()
			err = errors.Join(err, namespace.UnpinProcesses(r.pidNamespacePin(c)), r.removeBundle(c.rec.ID), mounts.RemoveAll(dir),
				r.dropViewsOf(ctx, c))
		}
	}()
	r.views.hold(c.rec.Chain)
	defer func() { r.views.release(append(slices.Clone(c.rec.Volumes), c.rec.Chain)...) }()
	err = errors.Join(checkUserNamespace(s, c.config), r.checkScheduling(s, c.config), r.checkMounts(s, c.config.GetMounts()))
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(dir, 0o711), r.makeBundle(s, c.rec.ID)); err != nil {
		return err
	}
	users, err := r.openUsers(s)
	if err != nil {
		return err
	}
	defer users.Close() // users may be nil, which Close accepts
	labels, err := r.selinux.Labels(c.config.GetLinux().GetSecurityContext(), s.rec.Level)
	if err != nil {
		return err
	}
	if err := r.mountRootfs(ctx, c, labels.File, users); err != nil {
		return err
	}
	requested := c.config
	if c.config, err = r.mountVolumes(ctx, c, labels.File, users); err != nil {
		return err
	}
	vols, err := r.makeImageVolumes(ctx, s, c, img.Config.Config.Volumes)
	if err != nil {
		return err
	}
	spec, err := r.specOf(s, c, img, labels, vols)
	if err != nil {
		return err
	}
	user := spec.Process.User // a copy, because a pointer would retain the process with its arguments and environment
	c.config, c.rec.User = requested, &user
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600); err != nil {
		return err
	}
	if err := createRecord(filepath.Join(dir, recordFile), c.rec); err != nil {
		return err
	}
	c.config, c.rec.Config = withoutSecrets(c.config), nil // release the fields that only the specification and the record need
	r.mu.Lock()
	if old := r.containers[c.rec.ID]; old != nil {
		r.podContainers.drop(old.config.GetLabels(), c.rec.ID)
	}
	r.containers[c.rec.ID] = c
	r.podContainers.put(c.config.GetLabels(), c.rec.ID, c)
	r.mu.Unlock()
	return nil
}

// removeBundle unmounts a container's root file system and removes its bundle.
func (r *Runtime) removeBundle(id string) error {
	b := r.bundlePath(id)
	if err := errors.Join(unmount(filepath.Join(b, rootfsDir)), unmount(filepath.Join(b, shiftedLayers)),
		r.unmountVolumes(id)); err != nil {
		return err
	}
	return mounts.RemoveAll(b)
}

// specOf returns the OCI specification of a container. The caller passes the volumes for the VOLUME instructions of its image.
func (r *Runtime) specOf(s *sandbox, c *container, img image.Resolved, labels selinux.Labels, vols []ocispec.Volume) (*specs.Spec, error) {
	root := filepath.Join(r.bundlePath(c.rec.ID), rootfsDir)
	if err := checkRootfs(root); err != nil {
		return nil, err
	}
	read := func(name string) ([]byte, error) { return untrusted.ReadInRoot(root, name, ocispec.MaxUserFile) }
	user, err := ocispec.User(read, c.config, img.Config.Config.User)
	if err != nil {
		return nil, err
	}
	if err := checkIDs(user, s.userMappings()); err != nil {
		return nil, err
	}
	profile, err := r.apparmor.Profile(c.config.GetLinux().GetSecurityContext())
	if err != nil {
		return nil, err
	}
	options, err := prepareHostPaths(c.config.GetMounts())
	if err != nil {
		return nil, err
	}
	if err := r.relabelMounts(s, append(mountsOf(vols), c.config.GetMounts()...), labels.File); err != nil {
		return nil, err
	}
	ns, err := r.namespacesOf(s, c)
	if err != nil {
		return nil, err
	}
	host := r.host
	if s.config.GetHostname() == "" {
		if host.NodeName, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	if c.config.GetLinux().GetSecurityContext().GetPrivileged() {
		if host.Devices, err = hostDevices(); err != nil {
			return nil, err
		}
	}
	spec, err := ocispec.NewSpec(ocispec.Input{
		Sandbox: s.config, Container: c.config, Image: img.Config.Config, User: user, Volumes: vols,
		Namespaces: ns, Files: r.filesOf(s), Host: host, CgroupsPath: r.cgroupsPath(s, c.rec.ID), AppArmor: profile,
		ProcessLabel: labels.Process, MountLabel: labels.File, HostOptions: options,
	})
	if err == nil {
		err = r.injectCDI(spec, c.config)
	}
	if err == nil {
		err = errors.Join(checkParents(root, spec), checkAccounts(root, spec.Mounts))
	}
	if err == nil {
		ocispec.SetHome(spec, ocispec.HomeDir(accountReader(root, spec.Mounts), user.UID))
	}
	if err == nil && s.tasks != nil {
		s.addAnnotations(spec, c.config)
	}
	if err == nil && len(r.hidden) > 0 && s.tasks == nil {
		c.mounts, err = r.lendMounts(c, spec, filepath.Join(r.dirs.pins, s.rec.ID))
	}
	c.plain = err == nil && isPlain(spec)
	return spec, err
}

// isPlain reports whether an ended container can be removed without the OCI runtime, by removing its cgroup and its state. A container with
// hooks (of a CDI device) or with Intel RDT needs the OCI runtime.
func isPlain(spec *specs.Spec) bool { return spec.Hooks == nil && spec.Linux.IntelRdt == nil }

// makeHostPaths creates a directory for each bind mount whose source is missing, as every CRI
// runtime does.
func makeHostPaths(mounts []*api.Mount) error {
	for _, m := range mounts {
		if _, err := os.Stat(m.GetHostPath()); errors.Is(err, os.ErrNotExist) {
			if err := os.MkdirAll(m.GetHostPath(), 0o755); err != nil {
				return fmt.Errorf("create %s for a mount: %w", m.GetHostPath(), err)
			}
		}
	}
	return nil
}

// relabelMounts sets the SELinux label of the files that the container mounts: the files of the sandbox,
// and the mounts that request relabeling. It does nothing if label is empty.
func (r *Runtime) relabelMounts(s *sandbox, mounts []*api.Mount, label string) error {
	f := r.filesOf(s)
	paths := []string{f.Hosts, f.Hostname, f.Resolv}
	if !s.hostIPC() {
		paths = append(paths, f.Shm)
	}
	for _, m := range mounts {
		if m.GetSelinuxRelabel() {
			paths = append(paths, m.GetHostPath())
		}
	}
	for _, path := range paths {
		if err := r.selinux.Relabel(path, label); err != nil {
			return err
		}
	}
	return nil
}
