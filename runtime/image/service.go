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

// Namespace is the containerd namespace of everything that CRI sees.
const Namespace = "k8s.io"

// Config is what a Service needs.
type Config struct {
	Client *client.Client
	// Root is the directory that holds containerd's content and snapshots. Its
	// file system is what ImageFsInfo names and what imports never fill.
	Root string
	// Snapshotter is the name of containerd's snapshotter, such as overlayfs.
	Snapshotter string
	// CertsDir holds a folder per registry with a hosts.toml (mirrors, CAs, plain
	// HTTP), as containerd's config_path does. Empty: HTTPS and the system's CAs.
	CertsDir string
	// SerializePulls lets one pull at a time go on, as serializeImagePulls of the
	// KubeletConfiguration says.
	SerializePulls bool
	// LinkDown reports that the way out of this node is known to be down: a registry
	// that does not answer soon is not waited for. Nil: unknown.
	LinkDown func() bool
	// MaxParallel bounds pulls going on at once; 0 means 4. With SerializePulls it
	// has no meaning.
	MaxParallel int
	// PullsPerSecond bounds pulls that download something, after PullBurst of them, as
	// registryPullQPS and registryBurst say; the next ones wait. 0: any number.
	PullsPerSecond, PullBurst int
	// Now is the time by which certificates of registries are judged; nil: time.Now.
	Now func() time.Time
	// OnChange is called after an image was added, from the goroutine that added
	// it; it must not block. May be nil.
	OnChange func()
	// OnRemove is called after images were removed, from the goroutine that removed
	// them. May be nil.
	OnRemove func()
	Log      *slog.Logger
}

const (
	// partialAge bounds how long a pull that stopped may be resumed.
	partialAge = 24 * time.Hour
	// partialBytes bounds what all stopped pulls together keep on disk.
	partialBytes = 2 << 30
	// reserve is what an import or a pull leaves free on the disk, in bytes, so
	// that pods and the store can go on writing.
	reserve = 64 << 20

	defaultParallel = 4
)

// Service implements cri.Images and cri.Archives over containerd. All methods
// may be called at once from many goroutines.
type Service struct {
	c        Config
	log      *slog.Logger
	platform platforms.MatchComparer
	index    index
	leases   leaseSet
	going    going
	pulls    *semaphore.Weighted
	rate     *rate.Limiter
	places   places // what is unpacked and read shares
	hosts    hosts
	promised atomic.Int64 // bytes that layers being unpacked are about to write
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

// New makes a Service. It touches neither disk nor network.
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
		// Unpacking is bound by CPU and flash; more at once only costs memory.
		places: newPlaces(min(2, runtime.GOMAXPROCS(0))),
	}, nil
}

// sweepEvery is how often Run looks for pulls that nobody resumed.
const sweepEvery = 6 * time.Hour

// Run removes what imports and pulls of an earlier process left half done,
// keeping what a pull can resume, and from time to time what nobody resumed. It
// blocks until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		err := s.forsake(namespaced(ctx))
		if err == nil {
			err = s.sweep(namespaced(ctx))
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("sweep of unfinished images failed", "error", err)
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

// noImage is the error for a reference that nothing here answers to.
func noImage(ref string, kind error) error {
	return fmt.Errorf("image %q: %w", ref, kind)
}
