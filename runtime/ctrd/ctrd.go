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
	// Setup connects the sandbox to the network and returns its addresses. Repeated calls for the
	// same id are permitted.
	Setup(ctx context.Context, id, netns string, cfg *api.PodSandboxConfig) ([]netip.Addr, error)
	// Teardown disconnects a sandbox. Repeated calls are permitted, even if the namespace no longer
	// exists.
	Teardown(ctx context.Context, id, netns string, cfg *api.PodSandboxConfig) error
	// Ready returns nil if pods can be connected, and otherwise an error with the reason.
	Ready() error
}

// Images resolves the image of a container.
type Images interface {
	Resolve(ctx context.Context, ref string) (image.Resolved, error)
}

// Config configures New.
type Config struct {
	Daemon  *daemon.Daemon
	Images  Images
	Network Network
	// StateDir must persist across reboots. RunDir need not. The path of RunDir must be short
	// enough for unix sockets below it.
	StateDir, RunDir string
	// PodDirs are the directories below which the volumes of pods are mounted. New turns them into mount points. A shim sees a mount below
	// these directories only if one of its containers uses it.
	PodDirs []string
	// ShimPath is the path of the shim program. If it is empty, the embedded shim is unpacked and
	// used.
	ShimPath string
	// ShimPods is the number of pods that share a shim. A value below 1 means 1.
	ShimPods int
	// OCIRuntime is a path or a name. The default is crun if it works on this host, and runc otherwise.
	OCIRuntime string
	// RemoveOnly means that containers are only removed. No OCI runtime is necessary for that.
	RemoveOnly bool
	// Handlers are the runtime handlers that sandboxes may request, by name.
	Handlers        map[string]Handler
	SystemdCgroup   bool
	CDIDirs         []string // directories of CDI specifications; if empty, /etc/cdi and /var/run/cdi
	LogMaxSize      int64    // in bytes; if 0, logs are not rotated
	LogMaxFiles     int
	LogInterval     time.Duration        // minimum time between two rotations of a log that is below LogHardMaxBytes
	LogHardMaxBytes int64                // in bytes; if 0, LogMaxSize times LogMaxFiles
	Cgroups         *cgroup.CachedReader // cgroup readings shared with other readers; if nil, Runtime has its own
	Log             *slog.Logger
}

// Runtime implements cri.Runtime, cri.Events and cri.Streamer. Its methods are safe for concurrent
// use.
type Runtime struct {
	c      Config
	log    *slog.Logger
	dirs   dirs
	boot   string // identifies this boot and this run directory; see bootName
	bootID string // the kernel's boot ID; see bootid
	oci    wire.OCI
	// hidden contains the directories below which shims see no mounts.
	hidden     []string
	abilities  abilities.Cache // cache of the features of OCI runtimes
	checkShift func() error    // returns an error if root file systems cannot be mapped into a user namespace; cached
	// ociVersion returns the version of the OCI runtime. The first call runs the program.
	ociVersion func() string
	host       ocispec.Host
	apparmor   *apparmor.Host
	selinux    *selinux.Host
	snap       snapshots.Snapshotter

	cgroups *cgroup.CachedReader
	trees   disk.Trees // sizes of the containers' writable layers
	shims   *shimSet
	events  taskEvents
	watch   watchers
	views   layerCache
	ops     opLocks        // serializes operations on the same ID, and checks of the accounts of the same container
	tasks   sync.WaitGroup // exits that are being handled

	execGrace time.Duration // see killGrace, which is used if this is 0; tests with real commands set it
	abandoned abandonedCommands

	// occupied contains IDs whose records can neither be read nor be removed, and IDs of unknown containers that could not be ended. It
	// does not change after New.
	occupied   map[string]bool
	restoring  sync.Mutex          // held while lost directories are recreated
	mu         sync.Mutex          // guards the fields below and the mutable fields of their elements
	starting   map[string]*sandbox // sandboxes that RunPodSandbox is starting; they are not in sandboxes yet
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// The elements of the maps sandboxes and containers, indexed by pod UID.
	podSandboxes  byPod[sandbox]
	podContainers byPod[container]
}

// dirs are the paths below StateDir and RunDir.
type dirs struct {
	sandboxes, containers, program       string // persistent, in StateDir
	bundles, files, pins, sockets, state string // lost at a reboot, in RunDir
	handlers                             string // in RunDir: state of the OCI runtimes of handlers
	tasks                                string // in RunDir: sockets of containerd shims
}

// Containers returns the directory below stateDir that contains the writable layers of containers.
func Containers(stateDir string) string { return filepath.Join(stateDir, "containers") }

// New returns a Runtime that is ready for requests. It takes over the containers of an earlier
// process and removes the incomplete objects that the process left behind. Running containers
// continue to run.
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
		trees:     disk.Trees{Age: maxLayerAge},
		occupied:  map[string]bool{},
		starting:  map[string]*sandbox{},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		podSandboxes: byPod[sandbox]{}, podContainers: byPod[container]{},
	}
	for _, d := range append(r.runDirs(), r.dirs.sandboxes, r.dirs.containers) {
		if err := daemon.CreatePrivateDir(d); err != nil {
			return nil, fmt.Errorf("create runtime directory: %w", err)
		}
	}
	if err := r.restrictBundles(); err != nil {
		return nil, fmt.Errorf("restrict the access to bundles: %w", err)
	}
	if r.bootID = bootid.Read(); r.bootID == "" {
		r.log.Warn("the kernel's boot ID could not be read")
	}
	var err error
	if r.boot, err = bootName(c.RunDir, r.bootID); err != nil {
		r.log.Warn("container IDs depend on this process, not on this boot of the machine", "error", err)
	}
	r.apparmor, r.selinux = apparmor.New(r.log), selinux.New()
	if r.c.ShimPath == "" {
		if r.c.ShimPath, err = shim.Unpack(r.dirs.program); err != nil {
			return nil, err
		}
	}
	if r.host, err = inspectHost(r.log); err != nil {
		return nil, err
	}
	if r.oci, err = r.selectOCI(ctx); err != nil {
		return nil, err
	}
	if r.hidden, err = r.hideMounts(); err != nil {
		r.log.Warn("the mounts of pods cannot be hidden from shims: every additional pod makes the start of a container slower",
			"error", err)
	}
	r.ociVersion, r.checkShift = sync.OnceValue(r.readOCIVersion), sync.OnceValue(r.tryShift)
	r.shims = newShims(r)
	if err := r.recoverState(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take over containers: %w", err), r.Close())
	}
	return r, nil
}

// Close waits for exits that are being handled and closes the connections to the shims. The
// containers continue to run.
func (r *Runtime) Close() error {
	r.closeTasks()
	r.shims.close()
	r.tasks.Wait()
	r.apparmor.Close()
	return r.unhideMounts()
}
