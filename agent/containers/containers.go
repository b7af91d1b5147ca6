// Package containers is what runs the containers: containerd, images and the built-in
// network in this process, opened by one configuration.
//
//	Open --> Runtime, Images (counted) --> workers, server, CRI socket
//	     --> Network --> node, status
//	Run: image archives are imported, broken pulls cleared up
package containers

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

	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/agent/figures"
	"github.com/islet-edge/islet/agent/worker"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/net/cni"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/ctrd"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/image"
)

// What is below the state directory.
const (
	storage = "containerd" // images, content and snapshots
	records = "runtime"    // of sandboxes and containers
)

// Config is what Open needs.
type Config struct {
	*config.Config
	Store          *store.Store // of leases and imports
	ImagesChanged  func()       // must not block
	ImagesRemoved  func()
	NetworkChanged func()     // must not block
	Link           *link.Link // for the time, and whether pulls can work
	Log            *slog.Logger
}

// Containers is what runs the containers.
type Containers struct {
	Runtime cri.Runtime
	Images  cri.Images

	Operations *figures.Operations // that Runtime and Images were asked

	Network *cni.Network
	service *image.Service
	inbox   *image.Inbox
	native  *ctrd.Runtime
	daemon  *daemon.Daemon
	log     *slog.Logger

	mu     sync.Mutex
	failed map[string]error // archives that could not be imported, by file name
}

// Open starts containerd and takes up what runs.
func Open(ctx context.Context, a Config) (*Containers, error) {
	k, e, dirs := a.Kubelet, a.Edge, a.Dirs
	c := &Containers{log: a.Log, failed: map[string]error{}}
	var err error
	if c.Network, err = openNetwork(a); err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	root := filepath.Join(dirs.State, storage)
	if c.daemon, err = daemon.Start(ctx, daemon.Config{Root: root, Log: a.Log}); err != nil {
		return nil, fmt.Errorf("containerd: %w", err)
	}
	c.service, err = image.New(image.Config{
		Client: c.daemon.Client(), Root: root, Snapshotter: c.daemon.Snapshotter(), CertsDir: e.RegistryConfigDir,
		SerializePulls: *k.SerializeImagePulls, MaxParallel: parallelPulls(a.Config), OnChange: a.ImagesChanged, OnRemove: a.ImagesRemoved, Now: a.Link.Now, Log: a.Log,
		LinkDown: a.Link.Down,
	})
	if err != nil {
		return nil, errors.Join(err, c.daemon.Close())
	}
	c.inbox, err = image.NewInbox(image.InboxConfig{Dir: inboxDir(a.Config), Service: c.service, Imports: a.Store, Report: c.report, Log: a.Log})
	if err != nil {
		return nil, errors.Join(err, c.daemon.Close())
	}
	c.native, err = ctrd.New(ctx, ctrd.Config{
		Daemon: c.daemon, Images: c.service, Network: c.Network, StateDir: filepath.Join(dirs.State, records), RunDir: dirs.Run,
		PodDirs:  []string{filepath.Join(dirs.Root, "pods")},
		ShimPods: e.ShimPods, OCIRuntime: e.OCIRuntime, Handlers: handlers(e.RuntimeHandlers), SystemdCgroup: k.CgroupDriver == "systemd",
		LogMaxSize: a.ContainerLogMaxSize, LogMaxFiles: int(*k.ContainerLogMaxFiles), Log: a.Log,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("container runtime: %w", err), c.daemon.Close())
	}
	c.Operations = figures.NewOperations()
	c.Runtime, c.Images = figures.Runtime{Runtime: c.native, Operations: c.Operations}, figures.Images{Service: c.service, Operations: c.Operations}
	return c, nil
}

// handlers are what a RuntimeClass may name here.
func handlers(configured []config.RuntimeHandler) map[string]ctrd.Handler {
	out := make(map[string]ctrd.Handler, len(configured))
	for _, h := range configured {
		out[h.Name] = ctrd.Handler{OCIRuntime: h.OCIRuntime, Shim: h.Shim, ShimConfig: h.ShimConfig}
	}
	return out
}

// openNetwork also puts links to this binary where CNI plugins that delegate to a
// built-in type find them.
func openNetwork(a Config) (*cni.Network, error) {
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
		Mode: cni.Mode(e.NetworkPlugin), Changed: a.NetworkChanged,
		ConfDir: e.CNIConfDir, BinDirs: e.CNIBinDirs, PodCIDRs: a.PodCIDRs, Bridge: e.BridgeName,
		Hairpin: a.Kubelet.HairpinMode != "none", DataDir: dir, Leases: a.Store, Log: a.Log,
	})
}

// Stacked are the directories below the state directory in which are layers and uppers of
// overlays: they cannot be on an overlay themselves.
func Stacked() []string {
	return []string{filepath.Join(storage, daemon.Overlay), ctrd.Containers(records)}
}

// Admits is why no pod gets a network of its own now, as a kubelet words it; nil:
// they do.
func (c *Containers) Admits() error { return networkNotReady(c.Network.Admit()) }

// Ready is the same of the node as a whole.
func (c *Containers) Ready() error { return networkNotReady(c.Network.Ready()) }

// networkNotReady words the network's error as a kubelet and containerd do.
func networkNotReady(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("container runtime network not ready: NetworkReady=false reason:%s message:Network plugin returns error: %w", ctrd.NetworkPluginNotReady, err)
}

func parallelPulls(cfg *config.Config) int {
	if n := cfg.Kubelet.MaxParallelImagePulls; n != nil {
		return int(*n)
	}
	return 0
}

func inboxDir(cfg *config.Config) string {
	if cfg.Edge.ImagesDir != "" {
		return cfg.Edge.ImagesDir
	}
	return filepath.Join(cfg.Dirs.State, "images")
}

// Run imports archives and cleans up after broken pulls until ctx ends.
func (c *Containers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.service.Run(ctx) })
	g.Go(func() error { return c.inbox.Run(ctx) })
	return g.Wait()
}

// Close leaves the containers running.
func (c *Containers) Close() error { return errors.Join(c.native.Close(), c.daemon.Close()) }

// Imports lets a pod wait for an archive that may bring its image.
func (c *Containers) Imports() worker.Imports { return c.inbox }

// Reconcile frees what belongs to sandboxes that are gone. It is called before
// any pod starts.
func (c *Containers) Reconcile(ctx context.Context) error {
	list, err := c.Runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{
		Filter: &api.PodSandboxFilter{State: &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY}},
	})
	if err != nil {
		return err
	}
	var live []string
	for _, s := range list.Items {
		live = append(live, s.Id)
	}
	return c.Network.Reconcile(ctx, live)
}

func (c *Containers) report(file string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.failed, file)
		return
	}
	c.failed[file] = err
	c.log.Warn("image archive not imported", "file", file, "error", err)
}
