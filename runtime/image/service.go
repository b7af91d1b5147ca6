package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/platforms"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/islet-edge/islet/runtime/cri"
)

// Namespace is the containerd namespace of all objects that the CRI lists.
const Namespace = "k8s.io"

// Config configures New.
type Config struct {
	Client *client.Client
	// Root is the directory with containerd's content and snapshots. ImageFsInfo reports the file
	// system of Root. Imports and pulls leave reservedSpace free on that file system.
	Root string
	// Snapshotter is the name of containerd's snapshotter, such as overlayfs.
	Snapshotter string
	// CertsDir has a folder for each registry, with a hosts.toml for mirrors, CAs and plain HTTP,
	// like containerd's config_path. If it is empty, HTTPS and the system's CAs are used.
	CertsDir string
	// SerializePulls makes pulls run one at a time, like serializeImagePulls of the
	// KubeletConfiguration.
	SerializePulls bool
	// LinkDown reports whether this node's uplink is known to be down. Connections to registries
	// then have a short timeout. If LinkDown is nil, the state of the uplink is unknown.
	LinkDown func() bool
	// MaxParallel is the maximum number of concurrent pulls. 0 means 4. It is ignored if
	// SerializePulls is set.
	MaxParallel int
	// PullsPerSecond and PullBurst limit the rate of pulls that download something, like
	// registryPullQPS and registryBurst. A pull that exceeds the rate waits. If PullsPerSecond is
	// 0, there is no limit.
	PullsPerSecond, PullBurst int
	// Now returns the time for the validation of registries' certificates. The default is time.Now.
	Now func() time.Time
	// OnChange, if not nil, is called after an image was added, by the goroutine that added it. It
	// must not block.
	OnChange func()
	// OnRemove, if not nil, is called after images were removed, by the goroutine that removed
	// them.
	OnRemove func()
	Log      *slog.Logger
}

const defaultParallel = 4

// Service implements cri.Images and cri.Archives with containerd. Its methods are safe for
// concurrent use.
type Service struct {
	c          Config
	log        *slog.Logger
	platform   platforms.MatchComparer
	index      imageIndex
	leases     leaseSet
	active     activitySet
	pulls      *semaphore.Weighted
	rate       *rate.Limiter
	shared     sharedResources // resources that all pulls and imports share
	hosts      pausedHosts
	kept       keptTransports
	promised   atomic.Int64 // number of bytes that layers in progress are about to write
	wrote      atomic.Uint64
	flushes    layerFlush
	usage      usageCache
	stall      time.Duration
	retryRatio time.Duration // see the constant
}

var (
	_ cri.Images   = (*Service)(nil)
	_ cri.Archives = (*Service)(nil)
	_ cri.Layers   = (*Service)(nil)
)

// New returns a Service. It accesses neither the disk nor the network.
func New(c Config) (*Service, error) {
	switch {
	case c.Client == nil:
		return nil, errors.New("image service: no containerd client")
	case c.Snapshotter == "":
		return nil, errors.New("image service: no snapshotter")
	case c.Root == "":
		return nil, errors.New("image service: no root directory")
	case c.Log == nil:
		return nil, errors.New("image service: no logger")
	}
	parallel := c.MaxParallel
	if parallel <= 0 {
		parallel = defaultParallel
	}
	if c.SerializePulls {
		parallel = 1
	}
	return &Service{
		c:          c,
		log:        c.Log,
		stall:      defaultStall,
		retryRatio: retryRatio,
		hosts:      pausedHosts{isUplinkDown: c.LinkDown},
		platform:   platforms.Only(platforms.DefaultSpec()),
		leases:     leaseSet{cleaning: semaphore.NewWeighted(1)},
		pulls:      semaphore.NewWeighted(int64(parallel)),
		rate:       cri.PullRate(c.PullsPerSecond, c.PullBurst),
		// CPU and flash limit the speed of unpacking. More concurrency would only use more memory.
		shared:  newSharedResources(min(2, runtime.GOMAXPROCS(0))),
		flushes: layerFlush{sync: unix.Syncfs},
	}, nil
}

func (s *Service) notifyChange() {
	s.usage.invalidate()
	if s.c.OnChange != nil {
		s.c.OnChange()
	}
}

func withNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, Namespace)
}

// noImage returns the error for an image that does not exist on this node.
func noImage(ref string, kind error) error {
	return fmt.Errorf("image %q: %w", ref, kind)
}
