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
	terminationLog = 0o666 // the container writes it under any user

	// answerTime is how long a path of the host may take, as a volume of a server may, until
	// the pod says that it waits.
	answerTime = 10 * time.Second
)

// A Kind is one type of volume. Its methods may be called from any goroutine.
type Kind interface {
	// Plugin is the kind's name in paths: kubernetes.io/empty-dir.
	Plugin() string
	// Serves reports whether a volume is of this kind.
	Serves(*v1.Volume) bool
	// SetUp makes the volume and returns where it is on the host. dir is the place
	// for it under the pod's directory and need not exist. It is called again for
	// each container and after a reboot, so a second call is success and cheap.
	// Whatever is mounted below dir is unmounted when the pod is released.
	SetUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume, dir string) (string, error)
}

// An Apart is a Kind whose volumes are mounted by somebody who keeps account of them, and
// who alone unmounts them: nothing of a pod is removed before that.
type Apart interface {
	Kind
	// Where gives where a volume is that SetUp has mounted, or the device of a block volume,
	// and how containers get it. It waits for nothing.
	Where(pod *v1.Pod, vol *v1.Volume) (path string, readOnly, relabel bool, err error)
	// Has reports whether anything of a pod is mounted, or may be; Pods lists those.
	Has(uid types.UID) bool
	Pods() []types.UID
	// TearDown unmounts all of a pod's volumes; an error says that some are mounted still.
	TearDown(ctx context.Context, uid types.UID) error
	// Sweep unmounts what no pod uses.
	Sweep(ctx context.Context) error
}

// Config is what Volumes needs.
type Config struct {
	Root     string                            // --root-dir
	Hostname func(*v1.Pod) (host, fqdn string) // of a pod, for /etc/hosts
	Objects  Objects                           // nil: this node has no apiserver
	Fields   Fields                            // for the downward API
	Kinds    []Kind                            // beyond those of this package
	Quota    Quota                             // nil: a sizeLimit on disk is a hint
	Memory   func() int64                      // bytes that all pods may use together; nil: not known
	// ReadOnlyTrees says whether mounts of a pod can be read-only with all below them; nil:
	// they cannot.
	ReadOnlyTrees func(*v1.Pod) bool
	Log           *slog.Logger // nil: none
}

// A Quota keeps directories to a size where the file system can. *quota.Projects is one.
type Quota interface {
	Limit(dir string, bytes int64) (kept bool, err error)
	// Forget gives back what Limit took, before the directory is removed.
	Forget(dir string) error
}

// Volumes is a hook for the life of a pod.
type Volumes struct {
	cfg   Config
	pods  string // real path: mounts are listed by it
	kinds []Kind
	opens turns // of what may not answer, and may take for ever
	turns turns // of what is mounted below a pod's directory

	// open is openSubPath, but for tests.
	open func(m *v1.VolumeMount, volume string) (*place, error)

	hosts sync.Mutex // guards the pods' etc-hosts: several containers of a pod may start at once
}

// builtin lists the kinds. One that is a Refresher has files that change, one that
// has a method ReadOnly() bool can be mounted read-only alone.
func builtin(cfg Config) []Kind {
	m := newMemory(cfg.Log)
	return append(contents(cfg.Objects, cfg.Fields, m), emptyDir{m, cfg.Quota, cfg.Memory}, hostPath{}, image{})
}

// A Refresher is a Kind whose volumes change while containers use them.
type Refresher interface {
	// Refresh brings the volume at dir up to date, if it is set up.
	Refresh(pod *v1.Pod, vol *v1.Volume, dir string) error
}

// New makes the directory of all pods.
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
	return &Volumes{cfg: cfg, pods: pods, kinds: append(builtin(cfg), cfg.Kinds...), open: openSubPath}, nil
}

// Name is the hook's.
func (*Volumes) Name() string { return "volumes" }

// Pods is the directory of all pods' directories.
func (v *Volumes) Pods() string { return v.pods }

func (v *Volumes) podDir(uid types.UID) string { return filepath.Join(v.pods, string(uid)) }

// Prepare makes the pod's directories and sets up every volume of it.
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

// Refresh brings the files of the pod's volumes up to date, where they changed:
// when an object that the pod uses did, or a label or annotation of the pod. Volumes
// that are not set up are left so.
func (v *Volumes) Refresh(pod *v1.Pod) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if r, ok := v.kind(vol).(Refresher); ok {
			if err := r.Refresh(pod, vol, v.dir(pod, vol, r.(Kind))); err != nil {
				errs = append(errs, fmt.Errorf("volume %q: %w", vol.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// kind returns nil for a volume that no kind serves.
func (v *Volumes) kind(vol *v1.Volume) Kind {
	if i := slices.IndexFunc(v.kinds, func(k Kind) bool { return k.Serves(vol) }); i >= 0 {
		return v.kinds[i]
	}
	return nil
}

func (v *Volumes) dir(pod *v1.Pod, vol *v1.Volume, k Kind) string {
	return filepath.Join(v.podDir(pod.UID), "volumes", escape(k.Plugin()), vol.Name)
}

func (v *Volumes) setUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (string, error) {
	k := v.kind(vol)
	if k == nil {
		return "", fmt.Errorf("volume %q is of a type that this node does not serve", vol.Name)
	}
	path, err := v.setUpKind(ctx, k, pod, vol)
	if _, apart := k.(Apart); apart { // whose errors say what failed of what
		return path, err
	}
	if err != nil {
		return "", fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", vol.Name, err)
	}
	return path, nil
}

// setUpKind gives up a path of the host that does not answer, as it may be a server's too.
func (v *Volumes) setUpKind(ctx context.Context, k Kind, pod *v1.Pod, vol *v1.Volume) (string, error) {
	if _, hosts := k.(hostPath); !hosts {
		return k.SetUp(ctx, pod, vol, v.dir(pod, vol, k))
	}
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	found := make(chan string, 1)
	if err := v.opens.alone(ctx, pod.UID, func() error {
		path, err := k.SetUp(ctx, pod, vol, "")
		found <- path
		return err
	}); err != nil {
		return "", err
	}
	return <-found, nil
}

// Container adds the mounts of one attempt of a container.
func (v *Volumes) Container(ctx context.Context, pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	for i := range ctr.VolumeMounts {
		m, err := v.mount(ctx, pod, ctr, i)
		if err != nil {
			return err
		}
		out.Mounts = append(out.Mounts, m)
	}
	for i := range ctr.VolumeDevices {
		d, err := v.device(pod, &ctr.VolumeDevices[i])
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

func (v *Volumes) mount(ctx context.Context, pod *v1.Pod, ctr *v1.Container, index int) (*api.Mount, error) {
	m := &ctr.VolumeMounts[index]
	i := slices.IndexFunc(pod.Spec.Volumes, func(vol v1.Volume) bool { return vol.Name == m.Name })
	if i < 0 {
		return nil, fmt.Errorf("volume mount %q: the pod has no such volume", m.Name)
	}
	if k, ok := v.kind(&pod.Spec.Volumes[i]).(image); ok {
		return k.mount(m, &pod.Spec.Volumes[i]), nil
	}
	path, readOnly, relabel, err := v.where(ctx, pod, &pod.Spec.Volumes[i])
	if err != nil {
		return nil, err
	}
	if m.SubPath != "" {
		if path, err = v.subPath(ctx, pod, ctr, index, path); err != nil {
			return nil, fmt.Errorf("subPath %q of volume %q: %w", m.SubPath, m.Name, err)
		}
	}
	out := &api.Mount{ContainerPath: filepath.Join("/", m.MountPath), HostPath: path, Readonly: m.ReadOnly || readOnly, SelinuxRelabel: relabel}
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

// where gives where a volume is, whether it can only be read, and whether it gets the
// pod's SELinux label: what is the pod's own does.
func (v *Volumes) where(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (path string, readOnly, relabel bool, err error) {
	k := v.kind(vol)
	if a, ok := k.(Apart); ok {
		return a.Where(pod, vol)
	}
	if c, ok := k.(*content); ok && written(v.dir(pod, vol, c)) {
		// Prepare has compared its files with what they are to be, before this container, and
		// what changes since is written by Refresh.
		return v.dir(pod, vol, c), c.ReadOnly(), true, nil
	}
	path, err = v.setUp(ctx, pod, vol)
	alone, ok := k.(interface{ ReadOnly() bool })
	_, hosts := k.(hostPath)
	return path, ok && alone.ReadOnly(), !hosts, err
}

// device gives a container a block volume.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#raw-block-volume-support
func (v *Volumes) device(pod *v1.Pod, d *v1.VolumeDevice) (*api.Device, error) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(vol v1.Volume) bool { return vol.Name == d.Name })
	if i < 0 {
		return nil, fmt.Errorf("volume device %q: the pod has no such volume", d.Name)
	}
	a, ok := v.kind(&pod.Spec.Volumes[i]).(Apart)
	if !ok {
		return nil, fmt.Errorf("volume device %q: the volume is not a block volume", d.Name)
	}
	path, readOnly, _, err := a.Where(pod, &pod.Spec.Volumes[i])
	if err != nil {
		return nil, err
	}
	out := &api.Device{ContainerPath: d.DevicePath, HostPath: path, Permissions: "mrw"}
	if readOnly {
		out.Permissions = "r"
	}
	return out, nil
}

// terminationLog gives the attempt a file of its own to leave its last words in.
// https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
func (v *Volumes) terminationLog(pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	if ctr.TerminationMessagePath == "" {
		return nil
	}
	dir := filepath.Join(v.podDir(pod.UID), "containers", ctr.Name)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make the container's directory: %w", err)
	}
	attempt := out.Metadata.GetAttempt()
	if err := dropOldAttempts(dir, attempt); err != nil {
		return err
	}
	path := filepath.Join(dir, fmt.Sprint(attempt))
	if err := touch(path, terminationLog); err != nil {
		return fmt.Errorf("make the termination log: %w", err)
	}
	out.Mounts = append(out.Mounts, &api.Mount{ContainerPath: ctr.TerminationMessagePath, HostPath: path, SelinuxRelabel: true})
	return nil
}
