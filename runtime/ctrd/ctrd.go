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

// Network connects sandboxes that have their own network namespace.
type Network interface {
	// Setup connects the sandbox and returns its addresses. It is idempotent per id.
	Setup(ctx context.Context, id, netns string, cfg *api.PodSandboxConfig) ([]netip.Addr, error)
	// Teardown is idempotent; the namespace may not exist any more.
	Teardown(ctx context.Context, id, netns string, cfg *api.PodSandboxConfig) error
	// Ready returns nil, or the reason why pods cannot be connected.
	Ready() error
}

// Images resolves a container's image.
type Images interface {
	Resolve(ctx context.Context, ref string) (image.Resolved, error)
}

// Config configures New.
type Config struct {
	Daemon  *daemon.Daemon
	Images  Images
	Network Network
	// StateDir persists across reboots; RunDir need not. RunDir must be short enough for the path
	// of a unix socket below it.
	StateDir, RunDir string
	// PodDirs are the directories below which pods' volumes are mounted. They become mount points.
	// Shims do not see the mounts below them, except those that their containers need.
	PodDirs []string
	// ShimPath is the shim program; empty: the embedded shim is unpacked.
	ShimPath string
	// ShimPods is the number of pods that share a shim; less than 1 means 1.
	ShimPods int
	// OCIRuntime is a path or name; empty: crun if it works on this host, else runc.
	OCIRuntime string
	// Handlers are the runtime handlers that sandboxes may request, by name.
	Handlers      map[string]Handler
	SystemdCgroup bool
	CDIDirs       []string // directories of CDI specifications; empty: /etc/cdi and /var/run/cdi
	LogMaxSize    int64    // bytes; 0: logs are not rotated
	LogMaxFiles   int
	LogInterval   time.Duration  // minimum time between two rotations of a log, unless it reaches LogMost first
	LogMost       int64          // bytes; 0: LogMaxSize times LogMaxFiles
	Cgroups       *cgroup.Recent // shared with other readers; nil: its own
	Log           *slog.Logger
}

// Runtime implements cri.Runtime, cri.Events and cri.Streamer. Its methods are safe for concurrent
// use.
type Runtime struct {
	c      Config
	log    *slog.Logger
	dirs   dirs
	boot   string // identifies this boot of the machine and this run directory: see bootName
	bootID string // the kernel's boot ID: see bootid
	oci    wire.OCI
	// hidden are the directories whose mounts shims do not see.
	hidden    []string
	abilities abilities.Cache // of OCI runtimes
	shifts    func() error    // why root file systems cannot be mapped into a user namespace, or nil; tried once
	// ociVersion returns the OCI runtime's version; the first call runs the program.
	ociVersion func() string
	host       ocispec.Host
	apparmor   *apparmor.Host
	selinux    *selinux.Host
	snap       snapshots.Snapshotter

	cgroups *cgroup.Recent
	trees   disk.Trees // sizes of the containers' writable layers
	shims   *shims
	events  taskEvents
	watch   watchers
	views   views
	ops     locker.Locker  // serializes operations on one ID
	tasks   sync.WaitGroup // exits that are being handled

	occupied   map[string]bool // IDs whose records can be neither read nor removed; read-only after New
	restoring  sync.Mutex      // held while lost directories are recreated
	mu         sync.Mutex      // guards the fields below and the mutable fields of their elements
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// Indexes of the two maps above by pod.
	podSandboxes  byPod[sandbox]
	podContainers byPod[container]
}

// dirs are the paths below StateDir and RunDir.
type dirs struct {
	sandboxes, containers, program       string // persistent, in StateDir
	bundles, files, pins, sockets, state string // gone after a reboot, in RunDir
	handlers                             string // in RunDir: state of the handlers' OCI runtimes
	tasks                                string // in RunDir: sockets of containerd shims
}

// Containers returns the directory below stateDir that has the containers' writable layers.
func Containers(stateDir string) string { return filepath.Join(stateDir, "containers") }

// New takes over the containers of an earlier process, removes what that process left incomplete,
// and returns a Runtime that is ready. Running containers are not disturbed.
func New(ctx context.Context, c Config) (*Runtime, error) {
	if c.Daemon == nil || c.Images == nil || c.Network == nil || c.Log == nil || c.StateDir == "" || c.RunDir == "" {
		return nil, errors.New("ctrd: Daemon, Images, Network, Log, StateDir and RunDir are needed")
	}
	if len(c.CDIDirs) == 0 {
		c.CDIDirs = cdiDirs()
	}
	r := &Runtime{
		c: c, log: c.Log, snap: c.Daemon.Client().SnapshotService(c.Daemon.Snapshotter()),
		cgroups: cmp.Or(c.Cgroups, cgroup.NewRecent(cgroup.NewReader(cgroup.Mountpoint), time.Second)),
		dirs: dirs{
			sandboxes: filepath.Join(c.StateDir, "sandboxes"), containers: Containers(c.StateDir),
			program: filepath.Join(c.StateDir, "bin"),
			bundles: filepath.Join(c.RunDir, "b"), files: filepath.Join(c.RunDir, "sandboxes"),
			pins: filepath.Join(c.RunDir, "ns"), sockets: filepath.Join(c.RunDir, "s"), state: filepath.Join(c.RunDir, "oci"),
			handlers: filepath.Join(c.RunDir, "h"), tasks: filepath.Join(c.RunDir, "t"),
		},
		trees:     disk.Trees{Age: layerAge},
		occupied:  map[string]bool{},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		podSandboxes: byPod[sandbox]{}, podContainers: byPod[container]{},
	}
	for _, d := range append(r.runDirs(), r.dirs.sandboxes, r.dirs.containers) {
		if err := daemon.Private(d); err != nil {
			return nil, fmt.Errorf("make runtime directory: %w", err)
		}
	}
	if err := r.closeBundles(); err != nil {
		return nil, fmt.Errorf("close bundles: %w", err)
	}
	if r.bootID = bootid.Read(); r.bootID == "" {
		r.log.Warn("the kernel's boot ID could not be read")
	}
	var err error
	if r.boot, err = bootName(c.RunDir, r.bootID); err != nil {
		r.log.Warn("containers get IDs that are valid for this process, not for this boot", "error", err)
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
		r.log.Warn("pods' mounts cannot be hidden from shims: the cost of a container's start grows with the number of pods", "error", err)
	}
	r.ociVersion, r.shifts = sync.OnceValue(r.askVersion), sync.OnceValue(r.tryShift)
	r.shims = newShims(r)
	if err := r.recover(ctx); err != nil {
		return nil, fmt.Errorf("take over containers: %w", err)
	}
	return r, nil
}

// Close waits for exits that are being handled and closes the connections to the shims. Containers
// keep running.
func (r *Runtime) Close() error {
	r.closeTasks()
	r.shims.close()
	r.tasks.Wait()
	r.apparmor.Close()
	return r.unhide()
}
