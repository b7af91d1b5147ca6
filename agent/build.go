package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/update"
	"github.com/islet-edge/islet/agent/cluster"
	"github.com/islet-edge/islet/agent/cluster/sources"
	"github.com/islet-edge/islet/agent/doctor"
	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/engine/credentials"
	"github.com/islet-edge/islet/agent/engine/pulls"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/host/shutdown"
	"github.com/islet-edge/islet/agent/host/volatile"
	"github.com/islet-edge/islet/agent/kubelet/describe"
	"github.com/islet-edge/islet/agent/kubelet/health"
	"github.com/islet-edge/islet/agent/kubelet/page"
	"github.com/islet-edge/islet/agent/kubelet/ports"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/agent/pod/collect"
	"github.com/islet-edge/islet/agent/pod/figures"
	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/life/features"
	"github.com/islet-edge/islet/agent/pod/life/observe"
	"github.com/islet-edge/islet/agent/pod/life/pods"
	"github.com/islet-edge/islet/agent/pod/life/recovery"
	"github.com/islet-edge/islet/agent/pod/life/worker"
	"github.com/islet-edge/islet/agent/pod/machine"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe"
	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/agent/pod/probe/lifecycle"
	"github.com/islet-edge/islet/agent/pod/spec/hostport"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/agent/pod/spec/userns"
	"github.com/islet-edge/islet/agent/resource/garbage"
	"github.com/islet-edge/islet/agent/volume"
	"github.com/islet-edge/islet/agent/volume/objects"
	"github.com/islet-edge/islet/agent/volume/podvolumes"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/socket"
	"github.com/islet-edge/islet/metrics/exposition"
	"github.com/islet-edge/islet/runtime/apparmor"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/selinux"
)

// build makes every part but what others reach the agent at, and connects it. The order is that of the needs: what
// the store says comes before what runs, what runs before what is wanted.
func (a *agent) build(ctx context.Context) error {
	for _, part := range []func(context.Context) error{
		a.openDisk, a.openNode, a.openRuntime, a.openPods, a.openCluster, a.startDevices, a.buildWorkers, a.lookOnce,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openDisk takes the directories for this process alone, and opens the store.
func (a *agent) openDisk(ctx context.Context) error {
	locks, err := process.Lock(a.cfg.Dirs.State, a.cfg.Dirs.Run)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, locks.Close)
	a.sockets = socket.New(socket.Config{
		Lost: func() error { return locks.Retake(a.cfg.Dirs.Run) },
		Dirs: []string{a.cfg.Dirs.Run, a.cfg.Dirs.Root},
		Log:  a.log,
	})
	if a.volatile, err = volatile.Cover(volatile.Config{Dirs: a.writes(), Run: a.cfg.Dirs.Run}); err != nil {
		return err
	}
	if a.volatile.Fresh(a.cfg.Dirs.State) { // whose lock is another file now
		if err = locks.Add(a.cfg.Dirs.State); err != nil {
			return err
		}
	}
	if a.volatile != nil {
		a.log.Error(a.volatile.String())
	}
	if err := a.cfg.Dirs.Make(); err != nil {
		return err
	}
	if a.store, err = store.Open(ctx, filepath.Join(a.cfg.Dirs.State, process.Database), a.log); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	a.closers = append(a.closers, a.store.Close)
	return nil
}

// openNode makes what the node is: the machine and its devices, its way to the API server, its events, and what
// changes its configuration and program.
func (a *agent) openNode(ctx context.Context) (err error) {
	if a.machine, err = machine.New(ctx, a.cfg, apparmor.New(a.log).Enabled(), selinux.New().Enabled()); err != nil {
		return err
	}
	if err := a.openDevices(ctx); err != nil {
		return err
	}
	if a.link, a.uplink, a.twin, err = cluster.OpenLink(ctx, a.cfg, a.machine.IPs(), a.store, a.log); err != nil {
		return fmt.Errorf("the way to the API server: %w", err)
	}
	if a.events, err = a.newEvents(); err != nil {
		return err
	}
	if err = a.openKeeper(); err != nil {
		return err
	}
	a.updater, err = update.Open(a.cfg, a.version, a.keeper, a.link.Now, func() bool { return a.upkeep.Flash.Exceeded() }, a.log)
	return err
}

// openRuntime makes what runs containers and looks at them. What is wanted, as it was stored, comes before: the
// runtime tells of it at once.
func (a *agent) openRuntime(ctx context.Context) (err error) {
	if a.desired, err = desired.New(desired.Config{Store: a.store, Poke: a.wantedChanged, Hold: a.started.Holds(a.cfg), Log: a.log}); err != nil {
		return fmt.Errorf("load the wanted pods: %w", err)
	}
	if a.rt, err = engine.Open(ctx, engine.Config{Config: a.cfg, Store: a.store, ImagesChanged: a.imagesChanged, ImagesRemoved: func() { a.guard.Removed(ctx) }, NetworkChanged: a.networkChanged, Leaving: a.keepEnds, Tell: a.tellHeld, Hold: a.started.OnTrial(), Link: a.link, Log: a.log}); err != nil {
		return err
	}
	a.closers = append(a.closers, a.rt.Close)
	a.health = health.New(health.Config{
		Overdue: func() time.Duration { return a.workers.Overdue() }, Busy: func() time.Duration { return a.observer.Busy() }, Network: a.rt.Ready, Off: func() string { return a.shutdown.NotReady() },
	})
	a.reporter = machine.NewReporter(machine.ReporterConfig{
		Machine: a.machine, Runtime: a.rt.Runtime, Images: a.rt.Images, NotReady: a.health.NotReady, Addresses: a.link.SetAddresses, Conditions: a.keeper.Conditions, Events: a.events, Meta: a.store, Log: a.log, InUse: func() []v1.UniqueVolumeName { return a.claims.VolumesInUse() },
	})
	a.figures = figures.New(a.rt.Operations, a.rt.Cgroups.Unified())
	a.cfg.Features(a.figures.Feature)
	a.observer = observe.New(observe.Config{Runtime: a.rt.Runtime, Changed: a.poke, Relisted: a.figures.Relisted, Sync: a.cfg.Kubelet.SyncFrequency.Duration, Log: a.log})
	return nil
}

// openPods makes what knows the pods: objects that they read, sources that want them, what became of them, and what
// ends them all.
func (a *agent) openPods(ctx context.Context) (err error) {
	if a.objects, err = objects.Open(ctx, objects.Config{
		Client: a.link.Client(), Alone: a.cfg.Alone(), Store: a.store, Dir: filepath.Join(a.cfg.Dirs.State, process.Claims), Quota: &a.quotas, Node: a.cfg.Node.Name, Strategy: string(a.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy), Every: a.cfg.LooksEvery(), Touched: a.settler.Touched, Now: a.link.Now, Desired: a.desired, Events: a.events, NodeUID: func() types.UID { return a.cluster.NodeUID() }, Log: a.log,
		Refresh: func(pod *v1.Pod) error { return a.volumes.Refresh(a.pods.Allocated(pod)) }, Retry: func(uid types.UID) { a.workers.RetryPod(uid) },
	}); err != nil {
		return err
	}
	a.sources = sources.New(sources.Config{Config: a.cfg, Joins: !a.cfg.Alone(), Desired: a.desired, Objects: a.objects.Local, Spoke: a.spoke, Log: a.log})
	a.pods = pods.New(pods.Config{
		Desired: a.desired, Store: a.store, Spoken: a.sources.Spoken, Sources: sources.Names, Node: a.machine.Admit, Host: a.host,
		Running: a.figures.Running, Preempted: a.figures.Preempted, Barred: func(uid types.UID) bool { return a.eviction.Barred(uid) }, Off: func() bool { return a.shutdown.Going() },
		Made: recovery.Made{Runtime: a.rt.Runtime, View: a.observer, Log: a.log}.Pod, Resizes: a.figures, Devices: a.devices, Events: a.events, Log: a.log,
	})
	a.shutdown, err = shutdown.New(ctx, shutdown.Config{
		Periods: shutdown.Periods(&a.cfg.Kubelet), Host: shutdown.SystemLogind(a.log), File: filepath.Join(a.cfg.Dirs.Run, process.Shutdown), Meta: a.store, Pods: a.pods.List,
		AtRest: func(uid types.UID) bool { return plan.AtRest(a.input(uid)) }, Poke: a.poke, Changed: func() { a.reportNode(); a.pods.NodeChanged() }, Extend: a.manager.Extend, Events: a.events, Log: a.log,
	})
	return err
}

// openCluster makes what talks to the API server, unless the node stands alone.
func (a *agent) openCluster(ctx context.Context) (err error) {
	if a.cfg.Alone() {
		return nil
	}
	if a.follower, err = configure.NewFollower(a.keeper, a.link.Client(), a.link.Changed(), a.log); err != nil {
		return err
	}
	a.cluster, err = cluster.Open(ctx, cluster.Config{
		Config: a.cfg, Link: a.link, Twin: a.twin, Released: func() { a.workers.Retry() }, Store: a.store, Objects: a.objects, Events: a.events, Pods: a.pods, Desired: a.desired, Sink: a.sources.Sink(), Spoken: a.sources.OthersSpoken,
		Facts: a.reporter.Facts, Annotations: a.keeper.Annotations, Addresses: func() []string { return a.machine.Now().IPs }, Touched: a.settler.Touched, Changed: a.nodeChanged, Networks: a.rt.Network.SetPodCIDRs, Held: a.tellHeld, Log: a.log,
	})
	return err
}

// lookOnce looks at what runs, if the runtime is there by now, and makes what reads the sources.
func (a *agent) lookOnce(ctx context.Context) (err error) {
	if err := a.rt.Look(ctx, a.look, a.pods.Load); err != nil {
		return err
	}
	a.manifests, err = a.sources.Runners()
	return err
}

// keepEnds keeps how pods have ended in a runtime that the node leaves.
func (a *agent) keepEnds(ctx context.Context, rt cri.Runtime) error {
	view := observe.New(observe.Config{Runtime: rt, Changed: func(types.UID) {}, Log: a.log})
	if err := view.Relist(ctx); err != nil {
		return err
	}
	return recovery.Ends{Pods: a.desired.List(), View: view, Store: a.store, Host: a.machine.Host(), Now: time.Now(), Log: a.log}.Keep(ctx)
}

// look learns what runs. Until then nothing is started, ended or removed.
func (a *agent) look(ctx context.Context) error {
	if err := a.observer.Relist(ctx); err != nil {
		return fmt.Errorf("look at what runs: %w", err)
	}
	recovery.Begin(ctx, recovery.Config{Runtime: a.rt.Runtime, Desired: a.desired, Store: a.store, Environments: a.objects, Log: a.log})
	if err := a.rt.Reconcile(ctx); err != nil {
		a.log.Warn("not everything of pods that are gone could be cleaned up", "error", err)
	}
	if err := a.guard.Settle(ctx); err != nil {
		a.log.Error("the records of who pulled images could not be brought up to date", "error", err)
	}
	if err := a.handlers.Keep(a.observer.Has); err != nil {
		a.log.Warn("not everything that is known of the hooks of containers that are gone could be removed", "error", err)
	}
	if err := a.pods.Load(ctx, a.observer.UIDs()); err != nil {
		return fmt.Errorf("load what is known of the pods: %w", err)
	}
	a.pods.Look(a.probes.Recall)
	a.rt.Looked(ctx, a.machine.SetRuntime)
	return nil
}

// writes are the directories that the agent writes to, but for the run directory.
func (a *agent) writes() []volatile.Dir {
	return []volatile.Dir{
		{Path: a.cfg.Dirs.State, Apart: engine.Stacked()}, {Path: a.cfg.Dirs.Root},
		{Path: a.cfg.Kubelet.PodLogsDir}, {Path: a.cfg.Dirs.LogLinks},
	}
}

// buildServer opens what others reach the agent at.
func (a *agent) buildServer(ctx context.Context) (err error) {
	a.ports, err = ports.Open(ctx, ports.Config{Config: a.cfg, Link: a.link, Cluster: a.cluster != nil, Log: a.log})
	if err != nil {
		return err
	}
	a.closers = append(a.closers, a.ports.Close)
	if err := a.devices.Listen(); err != nil {
		return err
	}
	a.page = page.New(page.Config{Port: a.cfg.Edge.StatusPagePort, API: func() http.Handler { return a.server.Handler() }, Machine: page.OfMachine(a.cfg.Dirs.State), Log: a.log})
	if a.server, err = server.New(a.serverConfig()); err != nil {
		return err
	}
	if a.tools, err = engine.OpenSocket(a.cfg.Edge.CRISocket, a.rt.Streams, a.rt.Images, a.server.PodNeeding, a.sockets); err != nil {
		return err
	}
	a.socket, err = a.sockets.ListenLocal(filepath.Join(a.cfg.Dirs.Run, "islet.sock"), server.MaxLocal)
	return err
}

// buildWorkers makes what carries out what is decided for pods, and what joins in their lives.
func (a *agent) buildWorkers(ctx context.Context) (err error) {
	a.cgroups, err = a.rt.OpenCgroups(engine.Share{Config: a.cfg, Share: a.machine.Share(), Active: a.pods.List, Exclusive: a.devices.Pinning.Pod, Took: a.figures.Cgroup, Tell: a.tellHeld, Log: a.log})
	if err != nil {
		return err
	}
	a.can = features.Handlers{Runtime: a.rt.Runtime, Classes: features.ClassIsHandler{}}
	if a.objects.API != nil {
		a.can.Classes = a.objects.API
	}
	if err = a.openImageKeys(); err != nil {
		return err
	}
	if err = a.openVolumes(ctx); err != nil {
		return err
	}
	calls := call.New(call.Config{Runtime: a.rt.Runtime, Version: config.KubernetesMinor})
	if a.handlers, err = lifecycle.Open(lifecycle.Config{Caller: calls, Events: a.events, Dir: filepath.Join(a.cfg.Dirs.Run, process.Hooks)}); err != nil {
		return err
	}
	a.logs, a.links = collect.Logs{Dir: a.cfg.Kubelet.PodLogsDir}, &collect.Links{Dir: a.cfg.Dirs.LogLinks, Logs: a.cfg.Kubelet.PodLogsDir}
	a.devices.Pinning.Connect(a.rt.Runtime)
	a.hooks = hook.Chain{
		twin.Hold{Twin: a.twin, Running: func(uid types.UID) bool { sb, ok := a.observer.Pod(uid).Sandbox(); return ok && sb.Ready }},
		a.cgroups, a.objects, a.objects.Own, // first: what the others make in memory counts in the pod's cgroup; then what they read
		a.volumes, a.devices.Pinning, a.devices.Manager, a.devices.Dynamic, a.logs, a.links, recovery.Manifest{}, hostport.Hook{Host: os.DirFS("/"), Events: a.events, Log: a.log},
		userns.New(userns.Config{Pods: a.volumes.Pods(), Space: func() (userns.Space, error) { return userns.HostSpace(a.cfg.IDsPerPod(), int(a.cfg.Kubelet.MaxPods)) }, Handlers: a.can, Log: a.log}), // last: it maps the mounts of all others
	}
	executor := worker.ExecutorConfig{
		Runtime: a.rt.Runtime, Images: a.rt.Images, Imports: a.rt.Imports(), Node: a.machine.Now, Network: a.rt.Admits, Objects: a.objects, Alone: a.cluster == nil, Classes: a.can.Classes,
		Keyring: a.keys, Links: a.links, Files: a.volumes, Hooks: a.hooks, Hooking: a.handlers, Events: a.events, Log: a.log,
	}
	if a.guard != nil {
		executor.Guard = a.guard
	}
	a.executor = worker.NewExecutor(executor)
	a.probes = probe.New(probe.Config{Caller: calls, Input: a.input, Node: func() []string { return a.machine.Now().IPs }, Events: a.events, Hold: a.started.OnTrial(), File: filepath.Join(a.cfg.Dirs.Run, process.Probes), Changed: a.poke, Log: a.log})
	a.workers = worker.New(worker.Config{Desired: a.pods, View: a.observer, Actor: figures.Actor{Executor: a.executor, Figures: a.figures}, Events: a.events,
		Health: a.probes.Health, Changed: a.podChanged, Stale: a.rt.Network.Stale, Hooked: a.handlers.Has, Off: a.shutdown.Off, Sizes: translate.Fields{Node: a.machine.Now}.Sizes, CrashMax: a.cfg.CrashMax, Dead: garbage.Kept(a.cfg).Keep(a.observer), Log: a.log})
	a.upkeep = a.newUpkeep()
	if err := a.openEviction(); err != nil {
		return err
	}
	if a.cluster != nil {
		a.pods.Connect(a.workers, a.cluster.Outbox)
	} else {
		a.pods.Connect(a.workers, nil)
	}
	return nil
}

// openImageKeys makes what knows the credentials of registries, and who may use an image without them.
func (a *agent) openImageKeys() (err error) {
	c := credentials.Config{Plugins: a.cfg.CredentialProviderConfig, BinDir: a.cfg.CredentialProviderBinDir, Root: a.cfg.Dirs.Root, Meta: a.store, Down: a.link.Down, Secrets: a.objects, Log: a.log}
	if a.objects.API != nil {
		c.API = a.objects.API
	}
	if a.keys, err = credentials.Open(c); err != nil {
		return err
	}
	a.closers = append(a.closers, a.keys.Close)
	a.guard, err = pulls.Open(&a.cfg.Kubelet, pulls.Config{Store: a.store, Images: a.rt.Images, Log: a.log})
	return err
}

// openVolumes makes the volumes of pods, those that are claimed among them, and what finds drivers of those and of devices.
func (a *agent) openVolumes(ctx context.Context) (err error) {
	var api *volume.Cluster
	if o := a.objects.API; o != nil {
		api = &volume.Cluster{Client: a.link.Client(), Objects: o, Node: a.cluster.Node, Up: a.link.Changed()}
	}
	if a.claims, err = volume.Open(ctx, volume.Config{
		Config: a.cfg, Store: a.store, Labels: a.machine.Labels, Objects: a.objects.Own, Cluster: api, Events: a.events, Retry: func(uid types.UID) { a.workers.RetryPod(uid) }, Log: a.log,
		Label: selinux.New().Files(),
		Reject: func(p *v1.Pod, reason, message string) bool {
			return a.pods.Evict(ctx, p.UID, plan.End{Reason: reason, Message: "Pod was rejected: " + message})
		},
	}); err != nil {
		return err
	}
	if a.volumes, err = podvolumes.New(podvolumes.Config{
		Root: a.cfg.Dirs.Root, Quota: &a.quotas, Memory: func() int64 { all := a.machine.Now().Allocatable; return all.Memory().Value() }, Hostname: a.machine.Hostname, Fields: translate.Fields{Node: a.machine.Now},
		Objects: a.objects, ReadOnlyTrees: a.can.ReadOnlyTrees, Kinds: []podvolumes.Kind{a.claims.Keeper}, Log: a.log,
	}); err != nil {
		return err
	}
	a.plugins, err = plugins.New(plugins.Config{Root: a.cfg.Dirs.Root, Handlers: a.devices.Handle(a.claims.Handle(map[string]plugins.Handler{})), Log: a.log})
	return err
}

func (a *agent) serverConfig() server.Config {
	d := describe.Config{
		Config: a.cfg, Desired: a.desired, Store: a.store, Events: a.events, NotReady: a.health.NotReady, Spoken: a.sources.Spoken, Local: a.objects.Local, Input: a.input,
		Runtime: a.rt, Network: a.rt.Network, Endpoint: a.rt.Endpoint, Left: a.rt.Left, Database: filepath.Join(a.cfg.Dirs.State, process.Database), Volatile: a.volatile.String(),
		Addresses: func() []string { return a.machine.Now().IPs }, Waiting: a.claims.Waiting, Configuration: a.keeper.Problems, Flash: a.upkeep.Flash.Figures,
	}
	var metrics func() []exposition.Sample
	if c := a.cluster; c != nil {
		a.link.Client().Observe(a.figures.Asked(a.link.Client().Host))
		d.Cluster = &describe.Cluster{Link: a.link, Outbox: c.Outbox, Objects: a.objects, Brake: c.Brake, Twin: a.twin}
		metrics = func() []exposition.Sample {
			return figures.Link(a.link, a.cfg.Kubelet.ServerTLSBootstrap, a.events.Dropped())
		}
	}
	shows := describe.New(d)
	return server.Config{
		Version: a.version, KubeVersion: config.KubernetesVersion, NodeName: a.cfg.Node.Name, LogsDir: a.cfg.Kubelet.PodLogsDir,
		Disks:   []string{a.cfg.Dirs.State, a.cfg.Dirs.Root, a.cfg.Kubelet.PodLogsDir},
		Ignored: a.machine.Ignored, Pods: a.pods, Local: a.desired, Runtime: a.rt.Streams, Images: a.rt.Images,
		Decode: a.sources.DecodeLocal, Objects: objects.Manifests{Local: a.objects.Local, Claims: a.objects.Own, Desired: a.desired}, Describe: shows.Status, Details: shows.Details, Events: shows.Events, Accept: shows.Accept, TakeOver: shows.TakeOver, Restart: a.restart, Configuration: configure.Local{Keeper: a.keeper}, Updates: a.updater, Settings: func() any { return doctor.Settings(a.cfg) }, Usage: a.usage,
		Clock: describe.Clock{Link: a.link}, Shutdown: a.shutdown, Devices: a.devices.Show, Garbage: a.upkeep, Flash: a.upkeep.Flash.Figures,
		Checks: a.health.Checks(), Kubelet: ports.Paths(a.cfg, process.LevelOf(a.log)), Counted: slices.Concat(a.figures.Collectors(a.pods.Resizing), a.keys.Collectors(), a.handlers.Collectors(), a.shutdown.Collectors(), a.upkeep.Collectors(), a.keeper.Collectors(), a.objects.Collectors(), a.claims.Collectors(a.pods.List), a.devices.Collectors(), a.devices.Pinning.Collectors()), Metrics: metrics, ProbeMetrics: a.probes,
		Page:              a.page.Below(server.PathPage),
		StreamIdleTimeout: a.cfg.Kubelet.StreamingConnectionIdleTimeout.Duration, Log: a.log,
	}
}
