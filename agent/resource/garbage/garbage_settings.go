package garbage

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/runtime/cri"
)

// Settings returns a Config with the values from the configuration. The disk of the images is the disk of the state
// directory. For a remote runtime, it is the disk that the runtime reports.
func Settings(c *config.Config, images cri.Images) Config {
	k, h := &c.Kubelet, host.New(host.Config{})
	g := Config{
		Images: images, Remote: c.RuntimeEndpoint != "", High: int(*k.ImageGCHighThresholdPercent), Low: int(*k.ImageGCLowThresholdPercent),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration, Now: time.Now,
	}
	g.Disk = func(ctx context.Context) (Disk, error) {
		dir := c.Dirs.State
		if g.Remote {
			fs, err := images.ImageFsInfo(ctx, &api.ImageFsInfoRequest{})
			if err != nil {
				return Disk{}, fmt.Errorf("read the image file system: %w", err)
			}
			if len(fs.ImageFilesystems) == 0 {
				return Disk{}, fmt.Errorf("the container runtime reported no image file system")
			}
			dir = filepath.Clean(cmp.Or(fs.ImageFilesystems[0].GetFsId().GetMountpoint(), "/"))
		}
		d, err := h.Disk(ctx, dir)
		return Disk{Total: d.Total, Free: d.Free}, err
	}
	return g
}

// ContainerBounds returns the bounds for ended containers in a configuration.
func ContainerBounds(c *config.Config) Bounds {
	return Bounds{MinAge: c.DeadLimit.MinAge, PerContainer: int(c.DeadLimit.MaxPerContainer), Total: int(c.DeadLimit.Max)}
}
