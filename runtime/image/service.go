package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/platforms"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/islet-edge/islet/runtime/cri"
)

// Namespace is the containerd namespace of everything that the CRI shows.
const Namespace = "k8s.io"

// Config configures New.
type Config struct {
	Client *client.Client
	// Root is the directory with containerd's content and snapshots. ImageFsInfo reports its file
	// system, and imports and pulls leave reserve free there.
	Root string
	// Snapshotter is the name of containerd's snapshotter, such as overlayfs.
	Snapshotter string
	// CertsDir has a folder per registry with a hosts.toml (mirrors, CAs, plain HTTP), like
	// containerd's config_path. Empty: HTTPS and the system's CAs.
	CertsDir string
	// SerializePulls makes pulls run one at a time, like serializeImagePulls of the
	// KubeletConfiguration.
	SerializePulls bool
	// LinkDown reports whether this node's uplink is known to be down; then connections to
	// registries have a short timeout. Nil: unknown.
	LinkDown func() bool
	// MaxParallel is the maximum number of concurrent pulls; 0 means 4. It is ignored with
	// SerializePulls.
	MaxParallel int
	// PullsPerSecond and PullBurst limit the rate of pulls that download something, like
	// registryPullQPS and registryBurst. Further pulls wait. 0: no limit.
	PullsPerSecond, PullBurst int
	// Now returns the time for validating registries' certificates; nil: time.Now.
	Now func() time.Time
	// OnChange is called after an image was added, by the goroutine that added it; it must not
	// block. May be nil.
	OnChange func()
	// OnRemove is called after images were removed, by the goroutine that removed them. May be nil.
	OnRemove func()
	Log      *slog.Logger
}

const (
	// partialAge is how long a stopped pull can be resumed.
	partialAge = 24 * time.Hour
	// partialBytes bounds the downloads of all stopped pulls on disk.
	partialBytes = 2 << 30
	// reserve is the disk space that imports and pulls leave free, in bytes, so that pods and the
	// store can continue to write.
	reserve = 64 << 20

	defaultParallel = 4
)

// Service implements cri.Images and cri.Archives with containerd. Its methods are safe for
// concurrent use.
type Service struct {
	c        Config
	log      *slog.Logger
	platform platforms.MatchComparer
	index    index
	leases   leaseSet
	going    activities
	pulls    *semaphore.Weighted
	rate     *rate.Limiter
	places   places // shared by everything that is unpacked and read
	hosts    hosts
	promised atomic.Int64 // bytes that layers in progress are about to write
	wrote    atomic.Uint64
	dirty    atomic.Bool // layers were unpacked since the last flush
	flushing sync.Mutex
	usage    usageCache
	stall    time.Duration
}

var (
	_ cri.Images   = (*Service)(nil)
	_ cri.Archives = (*Service)(nil)
)

// New returns a Service. It accesses neither disk nor network.
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
		c:        c,
		log:      c.Log,
		stall:    defaultStall,
		hosts:    hosts{down: c.LinkDown},
		platform: platforms.Only(platforms.DefaultSpec()),
		pulls:    semaphore.NewWeighted(int64(parallel)),
		rate:     cri.PullRate(c.PullsPerSecond, c.PullBurst),
		// Unpacking is limited by CPU and flash; more concurrency only costs memory.
		places: newPlaces(min(2, runtime.GOMAXPROCS(0))),
	}, nil
}

// sweepEvery is the interval at which Run removes pulls that were not resumed.
const sweepEvery = 6 * time.Hour

// Run removes unfinished imports and pulls of an earlier process, except downloads that can be
// resumed, and at intervals those that were not resumed in time. It blocks until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		err := s.forsake(namespaced(ctx))
		if err == nil {
			err = s.sweep(namespaced(ctx))
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("leases of unfinished images could not be cleaned up", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *Service) changed() {
	s.usage.forget()
	if s.c.OnChange != nil {
		s.c.OnChange()
	}
}

func namespaced(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, Namespace)
}

// noImage returns the error for an image that does not exist here.
func noImage(ref string, kind error) error {
	return fmt.Errorf("image %q: %w", ref, kind)
}
