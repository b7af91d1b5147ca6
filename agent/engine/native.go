package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/engine/operations"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/net/cni"
	"github.com/islet-edge/islet/runtime/ctrd"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/image"
)

// Directories below the state directory.
const (
	storageDir = "containerd" // images, content and snapshots
	recordsDir = "runtime"    // state of sandboxes and containers
)

// nativeBackend is the container runtime in this process.
type nativeBackend struct {
	network *cni.Network
	service *image.Service
	inbox   *image.Inbox
	runtime *ctrd.Runtime
	daemon  *daemon.Daemon
	log     *slog.Logger

	forgetDamage func(ctx context.Context, reread func()) // see reportDamage

	mu           sync.Mutex
	importErrors map[string]error // errors of failed imports, by the archive's file name
}

// openNative starts containerd in this process and adopts the running sandboxes.
func openNative(ctx context.Context, a Config, cgroups *cgroup.CachedReader) (*Containers, error) {
	k, e, dirs := a.Kubelet, a.Edge, a.Dirs
	c := &nativeBackend{log: a.Log, importErrors: map[string]error{}}
	ops := operations.New(cni.RepairedItems()...)
	var err error
	if c.network, err = c.openNetwork(a, ops.CountRepair); err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	root := filepath.Join(dirs.State, storageDir)
	records := filepath.Join(dirs.State, recordsDir)
	if c.daemon, err = daemon.Start(ctx, daemon.Config{Root: root, Containers: ctrd.Containers(records), Log: a.Log}); err != nil {
		return nil, fmt.Errorf("containerd: %w", err)
	}
	c.forgetDamage = a.reportDamage(ctx, c.daemon)
	c.service, err = image.New(image.Config{
		Client: c.daemon.Client(), Root: root, Snapshotter: c.daemon.Snapshotter(), CertsDir: e.RegistryConfigDir,
		SerializePulls: *k.SerializeImagePulls, MaxParallel: parallelPulls(a.Config),
		PullsPerSecond: int(*k.RegistryPullQPS), PullBurst: int(k.RegistryBurst),
		OnChange: a.ImagesChanged, OnRemove: a.ImagesRemoved, Now: a.Link.Now, LinkDown: a.Link.IsDown, Log: a.Log,
	})
	if err != nil {
		return nil, errors.Join(err, c.daemon.Close())
	}
	c.inbox, err = image.NewInbox(image.InboxConfig{
		Dir: inboxDir(a.Config), Service: c.service, Imports: a.Store, Report: c.report, Log: a.Log,
	})
	if err != nil {
		return nil, errors.Join(err, c.daemon.Close())
	}
	c.runtime, err = ctrd.New(ctx, ctrd.Config{
		Daemon: c.daemon, Images: c.service, Network: c.network, StateDir: records, RunDir: dirs.Run,
		PodDirs:  []string{filepath.Join(dirs.Root, "pods")},
		ShimPods: e.ShimPods, OCIRuntime: e.OCIRuntime, RemoveOnly: a.RemoveOnly, Handlers: runtimeHandlers(e.RuntimeHandlers),
		SystemdCgroup: k.CgroupDriver == "systemd",
		LogMaxSize:    a.ContainerLogMaxSize, LogMaxFiles: int(*k.ContainerLogMaxFiles),
		LogInterval: k.ContainerLogMonitorInterval.Duration, LogHardMaxBytes: logHardMaxBytes(a.Config), Cgroups: cgroups, Log: a.Log,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("container runtime: %w", err), c.daemon.Close())
	}
	if err := ctrd.RemoveUnfinishedCheckpoints(filepath.Join(dirs.Root, "checkpoints")); err != nil {
		a.Log.Warn("cannot remove an unfinished checkpoint", "error", err)
	}
	rt := operations.Runtime{Runtime: c.runtime, Operations: ops}
	return &Containers{
		Runtime: rt, Streams: rt, Images: operations.Images{Service: c.service, Operations: ops}, Network: c.network,
		Operations: ops, Cgroups: cgroups, CgroupDriver: k.CgroupDriver, damage: c.daemon.Damage(), backend: c,
	}, nil
}

// runtimeHandlers returns the configured runtime handlers by the name that a RuntimeClass uses.
func runtimeHandlers(configured []config.RuntimeHandler) map[string]ctrd.Handler {
	out := make(map[string]ctrd.Handler, len(configured))
	for _, h := range configured {
		out[h.Name] = ctrd.Handler{OCIRuntime: h.OCIRuntime, Shim: h.Shim, ShimConfig: h.ShimConfig}
	}
	return out
}

// openNetwork opens the pod network. It also installs links to this binary, so that CNI
// plugins can delegate to a built-in type.
func (c *nativeBackend) openNetwork(a Config, repaired func(string)) (*cni.Network, error) {
	dir := filepath.Join(a.Dirs.State, "cni")
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := cni.Install(dir, self); err != nil {
		return nil, err
	}
	e := a.Edge
	return cni.New(cni.Config{
		Mode: cni.Mode(e.NetworkPlugin), Standalone: a.Standalone(), Changed: a.NetworkChanged,
		ConfDir: e.CNIConfDir, BinDirs: e.CNIBinDirs, PodCIDRs: a.PodCIDRs, Bridge: e.BridgeName,
		Hairpin: a.Kubelet.HairpinMode != "none", DataDir: dir, Leases: a.Store, Log: a.Log,
		RecordEvent: a.RecordEvent, Hold: a.Hold, OnRepair: repaired,
		Sandbox: func(id string) (string, string) { return c.runtime.SandboxNetwork(id) },
	})
}

// Programs returns the directory that contains the shim's program.
func Programs(stateDir string) string { return filepath.Join(stateDir, recordsDir, "bin") }

// OverlayDirs returns the directories that contain the lower and upper directories of overlay mounts. The paths are
// relative to the state directory. These directories cannot be on an overlay file system.
func OverlayDirs() []string {
	return []string{filepath.Join(storageDir, daemon.Overlay), ctrd.Containers(recordsDir)}
}

func (c *nativeBackend) CheckPodNetwork() error { return networkNotReady(c.network.CheckPodNetwork()) }

func (c *nativeBackend) Ready() error { return networkNotReady(c.network.Ready()) }

func (c *nativeBackend) IsResponding() bool { return true }

func (c *nativeBackend) Features() *api.RuntimeFeatures { return ctrd.Features() }

func (c *nativeBackend) Await(context.Context) error { return nil }

func inboxDir(cfg *config.Config) string {
	if cfg.Edge.ImagesDir != "" {
		return cfg.Edge.ImagesDir
	}
	return filepath.Join(cfg.Dirs.State, "images")
}

// Run imports archives and cleans up after interrupted pulls until ctx ends.
func (c *nativeBackend) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.service.Run(ctx) })
	g.Go(func() error { return c.inbox.Run(ctx) })
	g.Go(func() error { c.forgetDamage(ctx, c.inbox.Reread); return nil })
	return g.Wait()
}

func (c *nativeBackend) Close() error { return errors.Join(c.runtime.Close(), c.daemon.Close()) }

func (c *nativeBackend) UpdateDNS(dns func(*api.PodSandboxMetadata) *api.DNSConfig) error {
	return c.runtime.UpdateDNS(dns)
}

func (c *nativeBackend) Imports() Imports { return c.inbox }

func (c *nativeBackend) Reconcile(ctx context.Context) error {
	ready, err := c.runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{
		Filter: &api.PodSandboxFilter{State: &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY}},
	})
	if err != nil {
		return err
	}
	// A running container uses its sandbox's address, even if the sandbox is not ready.
	running, err := c.runtime.ListContainers(ctx, &api.ListContainersRequest{
		Filter: &api.ContainerFilter{State: &api.ContainerStateValue{State: api.ContainerState_CONTAINER_RUNNING}},
	})
	if err != nil {
		return err
	}
	var live []string
	for _, s := range ready.Items {
		live = append(live, s.Id)
	}
	for _, r := range running.Containers {
		live = append(live, r.PodSandboxId)
	}
	return c.network.Reconcile(ctx, live)
}

func (c *nativeBackend) report(file string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.importErrors, file)
		return
	}
	c.importErrors[file] = err
	c.log.Warn("cannot import an image archive", "file", file, "error", err)
}
