package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/collect"
	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/agent/hook"
	"github.com/islet-edge/islet/agent/observe"
	"github.com/islet-edge/islet/agent/server"
	"github.com/islet-edge/islet/agent/translate"
	"github.com/islet-edge/islet/agent/volume"
	"github.com/islet-edge/islet/agent/worker"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/net/uplink"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// An agent is every part of a node, built and connected.
type agent struct {
	cfg     *config.Config
	version string
	log     *slog.Logger

	store    *store.Store
	rt       *containers
	observer *observe.Observer
	desired  *desired.Desired
	executor *worker.Executor
	workers  *worker.Set
	figures  *figures
	hooks    hook.Chain
	cgroups  *cgroup.Pods
	volumes  *volume.Volumes
	logs     collect.Logs
	pods     *pods
	node     *node
	sources  []runner
	socket   net.Listener
	ports    []port
	link     *link.Link
	uplink   *uplink.Uplink // nil: the node stands alone
	events   *outbox.Events
	cluster  *cluster // nil: the node stands alone

	closers []func() error // called in reverse
}

// A runner does its work until ctx ends and returns when all that it started has.
type runner interface {
	Run(ctx context.Context) error
}

// Run is the agent: it returns nil when ctx has ended and everything is stopped,
// but for the pods, which go on running.
func Run(ctx context.Context, cfg *config.Config, version string, log *slog.Logger) (err error) {
	manager := takeServiceManager()
	a := &agent{cfg: cfg, version: version, log: log}
	defer func() { err = errors.Join(err, a.close()) }()
	if err := a.build(ctx); err != nil {
		if ctx.Err() != nil { // asked to end before it was there
			return nil
		}
		return err
	}
	tools, err := a.openCRISocket()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	run := func(what string, r runner) {
		g.Go(func() error {
			if err := r.Run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	run("containers", a.rt)
	run("observer", a.observer)
	run("pods", a.pods)
	run("memory", settling{a.pods.Changed, freeMemory, func() { garbage(busyGC) }, func(err error) { log.Debug("memory is not given back", "error", err) }})
	run("workers", a.workers)
	for _, s := range a.sources {
		run("source of pods", s)
	}
	run("link", a.link)
	if a.cluster != nil {
		run("uplink", a.uplink)
		run("cluster", a.cluster)
	}
	if tools != nil {
		run("CRI socket", tools)
	}
	srv, err := server.New(a.serverConfig())
	if err != nil {
		return err
	}
	g.Go(func() error { return srv.Run(ctx, a.socket) })
	for _, p := range a.ports {
		g.Go(func() error { return p.run(srv, ctx, p.ln) })
	}
	a.start()
	a.tellStart(ctx)
	if err := manager.tell("READY=1"); err != nil {
		log.Warn("systemd does not learn that islet is ready", "error", err)
	}
	return g.Wait()
}

func (a *agent) close() error {
	var errs []error
	for _, c := range slices.Backward(a.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// build makes every part and connects it. The order is that of the needs: what
// the store says comes before what runs, what runs before what is wanted.
func (a *agent) build(ctx context.Context) error {
	for _, dir := range []string{a.cfg.Dirs.State, a.cfg.Dirs.Run} {
		l, err := lock(dir)
		if err != nil {
			return err
		}
		a.closers = append(a.closers, l.Close)
	}
	var err error
	if a.store, err = store.Open(ctx, filepath.Join(a.cfg.Dirs.State, "islet.db"), a.log); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	a.closers = append(a.closers, a.store.Close)
	if a.node, err = newNode(ctx, a.cfg); err != nil {
		return err
	}
	if a.link, err = a.openLink(ctx); err != nil {
		return fmt.Errorf("the way to the API server: %w", err)
	}
	if a.events, err = a.newEvents(); err != nil {
		return err
	}
	a.pods = newPods(a)
	if a.rt, err = openContainers(ctx, a); err != nil {
		return err
	}
	a.closers = append(a.closers, a.rt.Close)
	a.observer = observe.New(observe.Config{Runtime: a.rt.runtime, Changed: a.poke, Log: a.log})
	if err := a.observer.Relist(ctx); err != nil {
		return fmt.Errorf("look at what runs: %w", err)
	}
	if a.desired, err = desired.New(desired.Config{Store: a.store, Poke: a.wantedChanged, Log: a.log}); err != nil {
		return fmt.Errorf("load the wanted pods: %w", err)
	}
	if a.joins() {
		if a.cluster, err = openCluster(ctx, a); err != nil {
			return err
		}
	}
	if err := a.buildWorkers(); err != nil {
		return err
	}
	if aside, yes := a.store.Rebuilt(); yes {
		a.log.Error("the database was broken: it is made anew from the sources and from what runs", "set aside", aside)
		if err := a.rebuild(ctx); err != nil {
			a.log.Error("not everything could be recovered from what runs", "error", err)
		}
	}
	if err := a.rt.reconcile(ctx); err != nil {
		a.log.Warn("not everything of pods that are gone could be cleaned up", "error", err)
	}
	if err := a.pods.load(ctx); err != nil {
		return fmt.Errorf("load what is known of the pods: %w", err)
	}
	if a.sources, err = a.buildSources(); err != nil {
		return err
	}
	if err := a.openPorts(ctx); err != nil {
		return err
	}
	a.socket, err = server.ListenLocal(filepath.Join(a.cfg.Dirs.Run, "islet.sock"), a.log)
	return err
}

func (a *agent) buildWorkers() error {
	k := a.cfg.Kubelet
	var err error
	a.cgroups, err = cgroup.New(cgroup.Config{Driver: k.CgroupDriver, Root: k.CgroupRoot, PodPidsLimit: *k.PodPidsLimit, CPUPeriod: a.cfg.CPUPeriod, Log: a.log})
	if err != nil {
		return fmt.Errorf("prepare the cgroups of pods: %w", err)
	}
	volumes := volume.Config{Root: a.cfg.Dirs.Root, Hostname: a.node.hostname, Fields: translate.Fields{Node: a.node.now}}
	executor := worker.ExecutorConfig{Runtime: a.rt.runtime, Images: a.rt.images, Imports: a.rt.imports(), Node: a.node.now, Events: a.events, Log: a.log}
	a.hooks = hook.Chain{a.cgroups} // first: what the others make in memory counts in the pod's cgroup
	if a.cluster != nil {
		objects := a.cluster.objects
		a.hooks = append(a.hooks, objects) // before those who read them
		volumes.Objects, executor.Objects, executor.Keyring = objects, objects, objects
	}
	if a.volumes, err = volume.New(volumes); err != nil {
		return err
	}
	a.logs = collect.Logs{Dir: k.PodLogsDir}
	a.hooks = append(a.hooks, a.volumes, a.logs, keepManifest{})
	executor.Hooks = a.hooks
	a.executor, a.figures = worker.NewExecutor(executor), newFigures(a.rt.operations)
	a.workers = worker.New(worker.Config{Desired: a.pods, View: a.observer, Actor: meteredActor{a.executor, a.figures}, Events: a.events,
		Changed: a.pods.changed, CrashMax: a.cfg.CrashMax, Log: a.log})
	return nil
}

// poke tells the worker of a pod that something changed. It is called by parts
// that are built before the workers; what they say then is read by start.
func (a *agent) poke(uid types.UID) {
	if a.workers != nil {
		a.workers.Poke(uid)
	}
}

// wantedChanged tells of a pod that is wanted otherwise than before: its labels and
// annotations may be shown in its volumes.
func (a *agent) wantedChanged(uid types.UID) {
	a.poke(uid)
	if a.cluster != nil {
		a.cluster.objects.changed(uid)
	}
}

// start pokes all pods that are wanted, and all of which something runs.
func (a *agent) start() {
	for _, p := range a.desired.List() {
		a.workers.Poke(p.Pod.UID)
	}
	for _, uid := range a.observer.UIDs() {
		a.workers.Poke(uid)
	}
}

// imagesChanged lets pods that wait for an image try again.
func (a *agent) imagesChanged() {
	if a.workers != nil {
		a.executor.ImagesChanged()
		a.workers.Retry()
	}
}
