package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

const (
	dirMode        = 0o750
	terminationLog = 0o666 // any user of a container may write to the file

	// answerTime is the maximum time to wait for a hostPath, which may be on a file server. After that the pod's
	// status reports an error.
	answerTime = 10 * time.Second
)

// A Kind is a type of volume. Its methods must be safe for concurrent use.
type Kind interface {
	// Plugin returns the kind's name that is used in paths, such as kubernetes.io/empty-dir.
	Plugin() string
	// Serves reports whether a volume is of this kind.
	Serves(*v1.Volume) bool
	// SetUp creates the volume and returns its path on the host. The directory dir is the usual path below the pod's
	// directory. It need not exist. SetUp is called for each container, and again after a reboot, so repeated calls
	// must succeed and be cheap. When the pod is released, all mounts below dir are unmounted.
	SetUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume, dir string) (string, error)
}

// A MountTracker is a Kind that keeps a record of its mounts and unmounts them itself. The files of a pod are removed only
// after TearDown has succeeded.
type MountTracker interface {
	Kind
	// MountPath returns the path at which SetUp has mounted a volume, and how containers mount it. The path of a block
	// volume is its device. MountPath never blocks.
	MountPath(pod *v1.Pod, vol *v1.Volume) (path string, readOnly, relabel bool, err error)
	// HasPod reports whether a volume of the pod is or may be mounted. Pods returns the UIDs of all pods for which HasPod
	// returns true.
	HasPod(uid types.UID) bool
	Pods() []types.UID
	// TearDown unmounts all volumes of a pod. If it returns an error, some volumes may still be mounted. It is called for every pod that
	// ends, and again after an error.
	TearDown(ctx context.Context, uid types.UID) error
	// Sweep unmounts volumes that no pod uses.
	Sweep(ctx context.Context) error
}

// Config configures Volumes.
type Config struct {
	Root     string                            // --root-dir
	Hostname func(*v1.Pod) (host, fqdn string) // returns the hostname of a pod, for /etc/hosts
	Objects  Objects                           // nil if the node has no API server
	Fields   Fields                            // for volumes of the type downwardAPI
	Kinds    []Kind                            // additional kinds
	Quota    Quota                             // if nil, the sizeLimit of an emptyDir on disk is not enforced
	Memory   func() int64                      // returns the number of bytes that are available to all pods together; nil if unknown
	// ReadOnlyTrees reports whether the pod's runtime supports recursive read-only mounts. If it is nil, no runtime
	// supports them.
	ReadOnlyTrees func(*v1.Pod) bool
	// Modes enables the field mode of emptyDir volumes. Owners enables the fields that set the user of files in
	// configMap, secret, downwardAPI and projected volumes. If they are false, these fields have no effect, as in a
	// kubelet.
	Modes, Owners bool
	Log           *slog.Logger // may be nil
}

// A Quota limits the size of directories, on file systems that support quotas. *quota.Projects implements it.
type Quota interface {
	Limit(dir string, bytes int64) (kept bool, err error)
	// RemoveLimit releases the quota of a directory that is about to be removed.
	RemoveLimit(dir string) error
}

// Volumes is a pod hook that manages the volumes of all pods.
type Volumes struct {
	cfg        Config
	podsDir    string // real path, which the mount table contains
	kinds      []Kind
	openLocks  podLocks // locked while opening a file, which may block forever on a file server
	mountLocks podLocks // locked while the mounts below a pod's directory are changed
	sweeps     sweepLoops

	// openFile is openSubPath, unless a test replaces it.
	openFile func(m *v1.VolumeMount, volume string) (*subPathFile, error)

	hostsLock sync.Mutex // guards the pods' etc-hosts files, because containers of a pod may start concurrently
}

// builtinKinds returns the kinds that this package implements. If a kind has a method ReadOnly that returns true,
// containers mount its volumes read-only.
func builtinKinds(cfg Config) []Kind {
	m := newMemory(cfg.Log)
	return append(contentKinds(fileSources{cfg.Objects, cfg.Fields, cfg.Owners}, m),
		emptyDir{m, cfg.Quota, cfg.Memory, cfg.Modes}, hostPath{}, imageVolume{})
}

// A Refresher is a Kind that can update its volumes while containers use them.
type Refresher interface {
	// Refresh updates the volume at dir. If the volume is not set up, Refresh does nothing.
	Refresh(pod *v1.Pod, vol *v1.Volume, dir string) error
}

// New returns the hook. It creates the parent directory of all pods' directories.
func New(cfg Config) (*Volumes, error) {
	if cfg.Objects == nil {
		cfg.Objects = noObjects{}
	}
	pods := filepath.Join(cfg.Root, "pods")
	if err := os.MkdirAll(pods, dirMode); err != nil {
		return nil, fmt.Errorf("make the directory of the pods: %w", err)
	}
	pods, err := filepath.EvalSymlinks(pods)
	if err != nil {
		return nil, fmt.Errorf("find the directory of the pods: %w", err)
	}
	return &Volumes{cfg: cfg, podsDir: pods, kinds: append(builtinKinds(cfg), cfg.Kinds...), openFile: openSubPath}, nil
}

// Name returns the name of the hook.
func (*Volumes) Name() string { return "volumes" }

// Pods returns the parent directory of all pods' directories.
func (v *Volumes) Pods() string { return v.podsDir }

func (v *Volumes) podDir(uid types.UID) string { return filepath.Join(v.podsDir, string(uid)) }

// Prepare creates the pod's directories and sets up all its volumes.
func (v *Volumes) Prepare(ctx context.Context, pod *v1.Pod) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	for _, d := range []string{"", "volumes", "containers", "plugins"} {
		if err := os.MkdirAll(filepath.Join(v.podDir(pod.UID), d), dirMode); err != nil {
			return fmt.Errorf("make the pod's directory: %w", err)
		}
	}
	for i := range pod.Spec.Volumes {
		if _, err := v.setUp(ctx, pod, &pod.Spec.Volumes[i]); err != nil {
			return err
		}
	}
	return nil
}

// Refresh updates the files of the pod's volumes. It must be called after an object that the pod uses, or a label or
// annotation of the pod, has changed. It skips volumes that are not set up.
func (v *Volumes) Refresh(pod *v1.Pod) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if r, ok := v.kindOf(vol).(Refresher); ok {
			if err := r.Refresh(pod, vol, v.volumeDir(pod, vol, r.(Kind))); err != nil {
				errs = append(errs, fmt.Errorf("volume %q: %w", vol.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// kindOf returns the kind of a volume, or nil if no kind serves it.
func (v *Volumes) kindOf(vol *v1.Volume) Kind {
	if i := slices.IndexFunc(v.kinds, func(k Kind) bool { return k.Serves(vol) }); i >= 0 {
		return v.kinds[i]
	}
	return nil
}

func (v *Volumes) volumeDir(pod *v1.Pod, vol *v1.Volume, k Kind) string {
	return filepath.Join(v.podDir(pod.UID), "volumes", escapePlugin(k.Plugin()), vol.Name)
}

func (v *Volumes) setUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (string, error) {
	k := v.kindOf(vol)
	if k == nil {
		return "", fmt.Errorf("volume %q is of a type that this node does not support", vol.Name)
	}
	path, err := v.setUpKind(ctx, k, pod, vol)
	if _, apart := k.(MountTracker); apart { // errors of a MountTracker need no prefix
		return path, err
	}
	if err != nil {
		return "", fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", vol.Name, err)
	}
	return path, nil
}

// setUpKind sets up a volume. For a hostPath, which may be on a file server, it waits at most answerTime.
func (v *Volumes) setUpKind(ctx context.Context, k Kind, pod *v1.Pod, vol *v1.Volume) (string, error) {
	if _, hosts := k.(hostPath); !hosts {
		return k.SetUp(ctx, pod, vol, v.volumeDir(pod, vol, k))
	}
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	found := make(chan string, 1)
	if err := v.openLocks.withLock(ctx, pod.UID, func() error {
		path, err := k.SetUp(ctx, pod, vol, "")
		found <- path
		return err
	}); err != nil {
		return "", err
	}
	return <-found, nil
}

// Container adds the mounts and devices of one attempt of a container.
func (v *Volumes) Container(ctx context.Context, pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	for i := range ctr.VolumeMounts {
		m, err := v.containerMount(ctx, pod, ctr, i)
		if err != nil {
			return err
		}
		out.Mounts = append(out.Mounts, m)
	}
	for i := range ctr.VolumeDevices {
		d, err := v.containerDevice(pod, &ctr.VolumeDevices[i])
		if err != nil {
			return err
		}
		out.Devices = append(out.Devices, d)
	}
	if err := v.etcHosts(pod, ctr, out); err != nil {
		return err
	}
	return v.terminationLog(pod, ctr, out)
}

func (v *Volumes) containerMount(ctx context.Context, pod *v1.Pod, ctr *v1.Container, index int) (*api.Mount, error) {
	m := &ctr.VolumeMounts[index]
	i := slices.IndexFunc(pod.Spec.Volumes, func(vol v1.Volume) bool { return vol.Name == m.Name })
	if i < 0 {
		return nil, fmt.Errorf("volume mount %q: the pod has no such volume", m.Name)
	}
	if k, ok := v.kindOf(&pod.Spec.Volumes[i]).(imageVolume); ok {
		return k.containerMount(m, &pod.Spec.Volumes[i]), nil
	}
	path, readOnly, relabel, err := v.locateVolume(ctx, pod, &pod.Spec.Volumes[i])
	if err != nil {
		return nil, err
	}
	if m.SubPath != "" {
		if path, err = v.subPath(ctx, pod, ctr, index, path); err != nil {
			return nil, fmt.Errorf("subPath %q of volume %q: %w", m.SubPath, m.Name, err)
		}
	}
	out := &api.Mount{
		ContainerPath: filepath.Join("/", m.MountPath), HostPath: path, Readonly: m.ReadOnly || readOnly,
		SelinuxRelabel: relabel, MountOptions: m.BindMountOptions,
	}
	switch p := m.MountPropagation; {
	case p == nil:
	case *p == v1.MountPropagationHostToContainer:
		out.Propagation = api.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case *p == v1.MountPropagationBidirectional:
		out.Propagation = api.MountPropagation_PROPAGATION_BIDIRECTIONAL
	}
	out.RecursiveReadOnly, err = podspec.ReadOnlyTree(m, func() bool { return v.cfg.ReadOnlyTrees != nil && v.cfg.ReadOnlyTrees(pod) })
	return out, err
}

// locateVolume returns the volume's path, whether the volume is read-only, and whether the runtime must relabel it for
// SELinux. All volumes except a hostPath must be relabelled.
func (v *Volumes) locateVolume(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (path string, readOnly, relabel bool, err error) {
	k := v.kindOf(vol)
	if a, ok := k.(MountTracker); ok {
		return a.MountPath(pod, vol)
	}
	if c, ok := k.(*content); ok && hasFiles(v.volumeDir(pod, vol, c)) {
		// The files are up to date: Prepare has checked them before this container, and Refresh writes later changes.
		return v.volumeDir(pod, vol, c), c.ReadOnly(), true, nil
	}
	path, err = v.setUp(ctx, pod, vol)
	alone, ok := k.(interface{ ReadOnly() bool })
	_, hosts := k.(hostPath)
	return path, ok && alone.ReadOnly(), !hosts, err
}

// containerDevice returns the container's device for a block volume.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#raw-block-volume-support
func (v *Volumes) containerDevice(pod *v1.Pod, d *v1.VolumeDevice) (*api.Device, error) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(vol v1.Volume) bool { return vol.Name == d.Name })
	if i < 0 {
		return nil, fmt.Errorf("volume device %q: the pod has no such volume", d.Name)
	}
	a, ok := v.kindOf(&pod.Spec.Volumes[i]).(MountTracker)
	if !ok {
		return nil, fmt.Errorf("volume device %q: the volume is not a block volume", d.Name)
	}
	path, readOnly, _, err := a.MountPath(pod, &pod.Spec.Volumes[i])
	if err != nil {
		return nil, err
	}
	out := &api.Device{ContainerPath: d.DevicePath, HostPath: path, Permissions: "mrw"}
	if readOnly {
		out.Permissions = "r"
	}
	return out, nil
}
