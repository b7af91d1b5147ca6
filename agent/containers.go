package agent

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
	"github.com/islet-edge/islet/agent/worker"
	"github.com/islet-edge/islet/net/cni"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/ctrd"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/image"
)

// containers is what runs the containers: containerd and the built-in network
// in this process.
type containers struct {
	runtime cri.Runtime
	images  cri.Images

	operations *operations // that runtime and images were asked

	network *cni.Network
	service *image.Service
	inbox   *image.Inbox
	native  *ctrd.Runtime
	daemon  *daemon.Daemon
	log     *slog.Logger

	mu     sync.Mutex
	failed map[string]error // archives that could not be imported, by file name
}

func openContainers(ctx context.Context, a *agent) (*containers, error) {
	k, e, dirs := a.cfg.Kubelet, a.cfg.Edge, a.cfg.Dirs
	c := &containers{log: a.log, failed: map[string]error{}}
	var err error
	if c.network, err = openNetwork(a); err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	root := filepath.Join(dirs.State, "containerd")
	if c.daemon, err = daemon.Start(ctx, daemon.Config{Root: root, Log: a.log}); err != nil {
		return nil, fmt.Errorf("containerd: %w", err)
	}
	c.service, err = image.New(image.Config{
		Client: c.daemon.Client(), Root: root, Snapshotter: c.daemon.Snapshotter(), CertsDir: e.RegistryConfigDir,
		SerializePulls: *k.SerializeImagePulls, MaxParallel: parallelPulls(a.cfg), OnChange: a.imagesChanged, Log: a.log,
	})
	if err != nil {
		return nil, errors.Join(err, c.daemon.Close())
	}
	c.inbox, err = image.NewInbox(image.InboxConfig{Dir: inboxDir(a.cfg), Service: c.service, Imports: a.store, Report: c.report, Log: a.log})
	if err != nil {
		return nil, errors.Join(err, c.daemon.Close())
	}
	c.native, err = ctrd.New(ctx, ctrd.Config{
		Daemon: c.daemon, Images: c.service, Network: c.network, StateDir: filepath.Join(dirs.State, "runtime"), RunDir: dirs.Run,
		ShimPods: e.ShimPods, OCIRuntime: e.OCIRuntime, SystemdCgroup: k.CgroupDriver == "systemd",
		LogMaxSize: a.cfg.ContainerLogMaxSize, LogMaxFiles: int(*k.ContainerLogMaxFiles), Log: a.log,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("container runtime: %w", err), c.daemon.Close())
	}
	c.operations = newOperations()
	c.runtime, c.images = meteredRuntime{c.native, c.operations}, meteredImages{c.service, c.operations}
	return c, nil
}

// openNetwork also puts links to this binary where CNI plugins that delegate to a
// built-in type find them.
func openNetwork(a *agent) (*cni.Network, error) {
	dir := filepath.Join(a.cfg.Dirs.State, "cni")
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := cni.Install(dir, self); err != nil {
		return nil, err
	}
	e := a.cfg.Edge
	return cni.New(cni.Config{
		ConfDir: e.CNIConfDir, BinDirs: e.CNIBinDirs, PodCIDRs: a.cfg.PodCIDRs, Bridge: e.BridgeName,
		Hairpin: a.cfg.Kubelet.HairpinMode != "none", DataDir: dir, Leases: a.store, Log: a.log,
	})
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
func (c *containers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.service.Run(ctx) })
	g.Go(func() error { return c.inbox.Run(ctx) })
	return g.Wait()
}

// Close leaves the containers running.
func (c *containers) Close() error { return errors.Join(c.native.Close(), c.daemon.Close()) }

// imports lets a pod wait for an archive that may bring its image.
func (c *containers) imports() worker.Imports { return c.inbox }

// reconcile frees what belongs to sandboxes that are gone. It is called before
// any pod starts.
func (c *containers) reconcile(ctx context.Context) error {
	list, err := c.runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{
		Filter: &api.PodSandboxFilter{State: &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY}},
	})
	if err != nil {
		return err
	}
	var live []string
	for _, s := range list.Items {
		live = append(live, s.Id)
	}
	return c.network.Reconcile(ctx, live)
}

func (c *containers) report(file string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.failed, file)
		return
	}
	c.failed[file] = err
	c.log.Warn("image archive not imported", "file", file, "error", err)
}
