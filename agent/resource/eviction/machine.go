package eviction

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/headroom"
	"github.com/islet-edge/islet/metrics/host"
)

// Images returns where the images and the containers are stored.
type Images interface {
	ImageFsInfo(context.Context, *api.ImageFsInfoRequest) (*api.ImageFsInfoResponse, error)
}

// A Machine describes the machine's cgroups and file systems.
type Machine struct {
	Cgroups cgroup.Reader
	Pods    string // path of the cgroup of all pods
	Root    string // the kubelet's root directory, with the volumes
	Images  Images
}

// NewForMachine is like New, but sets ResourceReader and Watch for this machine.
func NewForMachine(c Config, m Machine) (*Eviction, error) {
	disks := runtimeDisks{images: m.Images}
	c.PodsDir = filepath.Join(m.Root, "pods")
	c.Reader = headroom.New(headroom.Config{
		Host: host.New(host.Config{}), Cgroups: m.Cgroups, Pods: m.Pods, Node: m.Root, Runtime: disks.paths,
	})
	mount, unified := filepath.Join(cgroup.Mountpoint, "memory"), m.Cgroups.Unified()
	if unified {
		mount = cgroup.Mountpoint
	}
	c.Watch = func() Waker { return OpenWatch("/proc/pressure/memory", mount, m.Pods, unified, c.Log) }
	return New(c)
}

// runtimeDisks caches the paths of images and containers, because the runtime may measure all their files at each
// request.
type runtimeDisks struct {
	images Images

	mu               sync.Mutex
	image, container string
}

func (d *runtimeDisks) paths(ctx context.Context) (image, container string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.image != "" {
		return d.image, d.container, nil
	}
	info, err := d.images.ImageFsInfo(ctx, &api.ImageFsInfoRequest{})
	if err != nil {
		return "", "", err
	}
	for _, f := range info.ImageFilesystems {
		image = f.GetFsId().GetMountpoint()
	}
	container = image
	for _, f := range info.ContainerFilesystems {
		container = f.GetFsId().GetMountpoint()
	}
	if image == "" {
		return "", "", errors.New("the runtime reported no image file system")
	}
	d.image, d.container = image, container
	return image, container, nil
}
