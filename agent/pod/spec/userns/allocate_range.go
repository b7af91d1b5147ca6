package userns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// Handlers returns the runtime handler for a pod, and the features of the handler.
type Handlers interface {
	ForPod(ctx context.Context, pod *v1.Pod) (handler string, can *api.RuntimeHandlerFeatures, err error)
}

// Config configures Users.
type Config struct {
	Pods     string                // parent directory of the pods' directories
	Space    func() (Space, error) // called before the first range is allocated, usually HostSpace
	Handlers Handlers
	Log      *slog.Logger
}

// Users is a hook that assigns user namespaces to pods.
type Users struct {
	c Config

	mu     sync.Mutex
	space  *Space              // nil until Config.Space has been called
	ranges map[types.UID]Range // nil until the leases have been read
	broken map[types.UID]error // pods whose leases cannot be read
}

// New returns Users. It reads no files.
func New(c Config) *Users { return &Users{c: c} }

// Name returns the name of the hook.
func (*Users) Name() string { return "user namespace" }

// Sandbox sets the user namespace of the pod's sandbox. If the pod cannot have a user namespace, it returns the
// error of a kubelet.
func (u *Users) Sandbox(ctx context.Context, pod *v1.Pod, out *api.PodSandboxConfig) error {
	if !podspec.HasUserNamespace(&pod.Spec) {
		return nil
	}
	handler, can, err := u.c.Handlers.ForPod(ctx, pod)
	if err != nil || !can.GetUserNamespaces() {
		why := errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
		if handler != "" {
			why = fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
		}
		if err != nil {
			why = fmt.Errorf("%w: %w", why, err)
		}
		return why
	}
	users, err := u.podNamespace(pod.UID)
	if err != nil {
		return err
	}
	out.GetLinux().GetSecurityContext().GetNamespaceOptions().UsernsOptions = users
	return nil
}

// Container sets the user namespace of a container and maps its mounts to the pod's IDs, so that files that belong to
// root on the disk belong to root in the container.
func (u *Users) Container(_ context.Context, pod *v1.Pod, _ *v1.Container, out *api.ContainerConfig) error {
	if !podspec.HasUserNamespace(&pod.Spec) {
		return nil
	}
	users, err := u.podNamespace(pod.UID)
	if err != nil {
		return err
	}
	out.GetLinux().GetSecurityContext().GetNamespaceOptions().UsernsOptions = users
	for _, m := range out.Mounts {
		m.UidMappings, m.GidMappings = users.Uids, users.Gids
	}
	return nil
}

// Release frees the pod's range.
func (u *Users) Release(_ context.Context, uid types.UID) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, has := u.ranges[uid]
	if !has && u.broken[uid] == nil {
		return nil // a lease that was not read is removed together with the pod's directory
	}
	if err := dropLease(u.c.Pods, uid); err != nil {
		return fmt.Errorf("give back the pod's user IDs: %w", err)
	}
	delete(u.ranges, uid)
	delete(u.broken, uid)
	return nil
}

// podNamespace returns the user namespace of a pod. It allocates a range if the pod has none.
func (u *Users) podNamespace(uid types.UID) (*api.UserNamespace, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.load(); err != nil {
		return nil, fmt.Errorf("read the user IDs of pods: %w", err)
	}
	if err := u.broken[uid]; err != nil {
		return nil, err
	}
	r, ok := u.ranges[uid]
	if !ok {
		var err error
		if r, err = u.allocateRange(uid); err != nil {
			return nil, fmt.Errorf("create user namespace: %w", err)
		}
	}
	m := []*api.IDMapping{{HostId: r.First, Length: r.Count}}
	return &api.UserNamespace{Mode: api.NamespaceMode_POD, Uids: m, Gids: m}, nil
}

// allocateRange allocates a range for a pod and stores its lease.
func (u *Users) allocateRange(uid types.UID) (Range, error) {
	if u.space == nil {
		s, err := u.c.Space()
		if err != nil {
			return Range{}, err
		}
		u.space = &s
	}
	r, ok := u.space.lowestFree(u.takenRanges())
	if !ok { // pods that this process did not know may have been removed
		u.ranges = nil
		if err := u.load(); err != nil {
			return Range{}, err
		}
		if r, ok = u.space.lowestFree(u.takenRanges()); !ok {
			return Range{}, errors.New("could not find an empty slot to allocate a user namespace")
		}
	}
	if err := writeLease(u.c.Pods, uid, r); err != nil {
		return Range{}, err
	}
	u.ranges[uid] = r
	return r, nil
}

func (u *Users) takenRanges() (out []Range) {
	for _, r := range u.ranges {
		out = append(out, r)
	}
	return out
}

// load reads the leases of all pods.
func (u *Users) load() error {
	if u.ranges != nil {
		return nil
	}
	entries, err := os.ReadDir(u.c.Pods)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ranges, broken := map[types.UID]Range{}, map[types.UID]error{}
	for _, e := range entries {
		uid := types.UID(e.Name())
		r, err := readLease(u.c.Pods, uid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for other, o := range ranges {
			if err == nil && r.overlaps(o) {
				err = fmt.Errorf("range picked for pod %q already taken by pod %q", uid, other)
			}
		}
		if err != nil {
			broken[uid] = fmt.Errorf("user namespace: %w", err)
			u.c.Log.Error("cannot read the user IDs of a pod: its containers cannot start until it is created again", "path",
				filepath.Join(u.c.Pods, e.Name(), leaseFile), "error", err)
			continue
		}
		ranges[uid] = r
	}
	u.ranges, u.broken = ranges, broken
	return nil
}
