package ctrd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/moby/locker"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/runtime/abilities"
	"github.com/islet-edge/islet/runtime/apparmor"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/image"
	"github.com/islet-edge/islet/runtime/ocispec"
	"github.com/islet-edge/islet/runtime/selinux"
	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// Network connects sandboxes that have a network namespace of their own.
type Network interface {
	// Setup is idempotent per id.
	Setup(ctx context.Context, id, netns string, cfg *api.PodSandboxConfig) ([]netip.Addr, error)
	// Teardown is idempotent; the namespace may be gone already.
	Teardown(ctx context.Context, id, netns string, cfg *api.PodSandboxConfig) error
	// Ready is nil, or why pods cannot get a network.
	Ready() error
}

// Images finds the image of a container.
type Images interface {
	Resolve(ctx context.Context, ref string) (image.Resolved, error)
}

// Config is what New needs.
type Config struct {
	Daemon  *daemon.Daemon
	Images  Images
	Network Network
	// StateDir outlives a reboot, RunDir does not. The path of RunDir must be short
	// enough for a unix socket below it.
	StateDir, RunDir string
	// PodDirs are where others mount the volumes of pods. They become mount points,
	// and shims do not see what is mounted below them but for what a container needs.
	PodDirs []string
	// ShimPath is the shim program; empty: the embedded one, unpacked.
	ShimPath string
	// ShimPods is how many pods share a shim; less than 1 means 1.
	ShimPods int
	// OCIRuntime is a path or name; empty: crun if it works on this host, else runc.
	OCIRuntime string
	// Handlers are what sandboxes may ask for by name to be run with.
	Handlers      map[string]Handler
	SystemdCgroup bool
	CDIDirs       []string // of specifications of devices; none: /etc/cdi and /var/run/cdi
	LogMaxSize    int64    // bytes; 0: logs are not rotated
	LogMaxFiles   int
	LogInterval   time.Duration  // least time between two rotations of a log, unless it comes to LogMost before
	LogMost       int64          // bytes; 0: LogMaxSize times LogMaxFiles
	Cgroups       *cgroup.Recent // shared with others who measure; nil: its own
	Log           *slog.Logger
}

// Runtime implements cri.Runtime, cri.Events and cri.Streamer. All methods may be
// called at once.
type Runtime struct {
	c    Config
	log  *slog.Logger
	dirs dirs
	boot string // names this boot of the machine and this run directory
	born string // the machine's boot: see bootid
	oci  wire.OCI
	// hidden are the directories that shims do not see the mounts of.
	hidden    []string
	abilities abilities.Known // of OCI runtimes
	shifts    func() error    // why root file systems have no place in a user namespace; tried once
	// ociVersion asks once, and only when somebody wants to know.
	ociVersion func() string
	host       ocispec.Host
	apparmor   *apparmor.Host
	selinux    *selinux.Host
	snap       snapshots.Snapshotter

	cgroups *cgroup.Recent
	trees   disk.Trees // that containers wrote
	shims   *shims
	events  taskEvents
	watch   watchers
	views   views
	ops     locker.Locker  // serialises verbs on one ID
	tasks   sync.WaitGroup // exits being handled

	occupied   map[string]bool // IDs whose records can be neither read nor removed; read-only after New
	restoring  sync.Mutex      // held while directories that were lost are made again
	mu         sync.Mutex      // guards what follows, and the fields of what it holds that may change
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// The same by pod.
	podSandboxes  byPod[sandbox]
	podContainers byPod[container]
}

// dirs are where things are.
type dirs struct {
	sandboxes, containers, program       string // persistent
	bundles, files, pins, sockets, state string // gone after a reboot
	handlers                             string // the same; the state of handlers' OCI runtimes
	tasks                                string // the same; sockets of containerd shims
}

// Containers is where below a StateDir what containers write is, above the layers of
// their images.
func Containers(stateDir string) string { return filepath.Join(stateDir, "containers") }

// New takes over what an earlier process has left running, cleans up what it has
// left half done, and is ready. Containers that run are not touched.
func New(ctx context.Context, c Config) (*Runtime, error) {
	if c.Daemon == nil || c.Images == nil || c.Network == nil || c.Log == nil || c.StateDir == "" || c.RunDir == "" {
		return nil, errors.New("ctrd: Daemon, Images, Network, Log, StateDir and RunDir are needed")
	}
	if len(c.CDIDirs) == 0 {
		c.CDIDirs = cdiDirs()
	}
	r := &Runtime{
		c: c, log: c.Log, cgroups: cmp.Or(c.Cgroups, cgroup.NewRecent(cgroup.NewReader(cgroup.Mountpoint), time.Second)), snap: c.Daemon.Client().SnapshotService(c.Daemon.Snapshotter()),
		dirs: dirs{
			sandboxes: filepath.Join(c.StateDir, "sandboxes"), containers: Containers(c.StateDir),
			program: filepath.Join(c.StateDir, "bin"),
			bundles: filepath.Join(c.RunDir, "b"), files: filepath.Join(c.RunDir, "sandboxes"),
			pins: filepath.Join(c.RunDir, "ns"), sockets: filepath.Join(c.RunDir, "s"), state: filepath.Join(c.RunDir, "oci"), handlers: filepath.Join(c.RunDir, "h"),
			tasks: filepath.Join(c.RunDir, "t"),
		},
		trees:     disk.Trees{Age: layerAge},
		occupied:  map[string]bool{},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, podSandboxes: byPod[sandbox]{}, podContainers: byPod[container]{},
	}
	for _, d := range append(r.runDirs(), r.dirs.sandboxes, r.dirs.containers) {
		if err := daemon.Private(d); err != nil {
			return nil, fmt.Errorf("make runtime directory: %w", err)
		}
	}
	if err := r.closeBundles(); err != nil {
		return nil, fmt.Errorf("close bundles: %w", err)
	}
	if r.born = bootid.Read(); r.born == "" {
		r.log.Warn("the kernel names no boot")
	}
	var err error
	if r.boot, err = bootName(c.RunDir, r.born); err != nil {
		r.log.Warn("containers get IDs of this process, not of this boot", "error", err)
	}
	r.apparmor, r.selinux = apparmor.New(r.log), selinux.New()
	if r.c.ShimPath == "" {
		if r.c.ShimPath, err = shim.Unpack(r.dirs.program); err != nil {
			return nil, err
		}
	}
	if r.host, err = lookAtHost(r.log); err != nil {
		return nil, err
	}
	if r.oci, err = r.chooseOCI(ctx); err != nil {
		return nil, err
	}
	if r.hidden, err = r.hide(); err != nil {
		r.log.Warn("starting a container will cost more the more pods there are", "error", err)
	}
	r.ociVersion, r.shifts = sync.OnceValue(r.askVersion), sync.OnceValue(r.tryShift)
	r.shims = newShims(r)
	if err := r.recover(ctx); err != nil {
		return nil, fmt.Errorf("take over containers: %w", err)
	}
	return r, nil
}

// Close hangs up on the shims, after exits that are being handled. Containers go
// on running.
func (r *Runtime) Close() error {
	r.closeTasks()
	r.shims.close()
	r.tasks.Wait()
	r.apparmor.Close()
	return r.unhide()
}
