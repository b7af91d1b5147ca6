package agent

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/cluster/sources"
	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/pod/figures"
	"github.com/islet-edge/islet/agent/pod/life/worker"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/agent/resource"
	"github.com/islet-edge/islet/agent/resource/eviction"
	"github.com/islet-edge/islet/agent/resource/garbage"
	"github.com/islet-edge/islet/agent/resource/usage"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// workerParts contains the parts that act on the node: a worker for each pod, and the managers of the machine's
// resources.
type workerParts struct {
	*featureParts
	executor  *worker.Executor
	probes    *probe.Probes
	upkeep    *resource.Upkeep
	usage     *usage.Usage
	eviction  *eviction.Eviction
	workers   *worker.Set
	manifests []sources.Runner
}

func openWorkers(f *featureParts) (w *workerParts, err error) {
	w = &workerParts{featureParts: f}
	executor := worker.ExecutorConfig{
		Runtime: w.rt.Runtime, Images: w.rt.Images, Imports: w.rt.Imports(), Node: w.machine.Now, Network: w.rt.CheckPodNetwork,
		Standalone: w.cluster == nil, Classes: w.handlerFeatures.Classes, Keyring: w.credentials, Links: w.logs, Files: w.volumes,
		Hooks: w.hooks, Objects: w.objects, Lifecycle: w.handlers, CheckDNS: w.machine.CheckDNS, Events: w.events, Log: w.log,
	}
	if w.verifier != nil {
		executor.Verifier = w.verifier
	}
	w.executor = worker.NewExecutor(executor)
	w.probes = probe.New(probe.Config{
		Caller: w.calls, Input: w.laterParts.Input, Node: w.machine.PresentIPs, Events: w.events, Hold: w.configStart.OnTrial(),
		File: filepath.Join(w.cfg.Dirs.Run, process.Probes), Changed: w.laterParts.pokePod, Log: w.log,
	})
	w.upkeep = w.newUpkeep()
	if err := w.openEviction(); err != nil {
		return nil, err
	}
	w.workers = worker.New(worker.Config{
		Desired: w.pods, View: w.observer, Actor: figures.Actor{Executor: w.executor, Figures: w.figures}, Events: w.events,
		Health: w.probes.Health, Changed: w.podChanged, IsStale: w.rt.Network.IsStale, HookReturned: w.handlers.HasReturned,
		ShutdownTermination: w.shutdown.PodTermination, Sizes: translate.Fields{Node: w.machine.Now}.Sizes, CrashMax: w.cfg.CrashMax,
		DeadLimit: garbage.ContainerBounds(w.cfg).ForPlans(w.observer), Interruption: w.handlers.Interruption, Log: w.log,
	})
	w.laterParts.upkeep.set(w.upkeep)
	w.laterParts.eviction.set(w.eviction)
	w.laterParts.executor.set(w.executor)
	w.laterParts.workers.set(w.workers)
	return w, nil
}

// newUpkeep returns the Upkeep, which frees disk space. The eviction manager calls it before it evicts a pod for disk pressure.
func (w *workerParts) newUpkeep() *resource.Upkeep {
	return resource.New(resource.Config{
		Config: w.cfg, Images: w.rt.Images, Shims: engine.Programs(w.cfg.Dirs.State), Store: w.store,
		Cgroup: cgroup.Path(w.rt.CgroupDriver, w.cfg.Kubelet.CgroupRoot), Kernel: filepath.Join(w.cfg.Dirs.Run, process.OOM),
		OOM: w.laterParts.reportOutOfMemory, Garbage: garbage.Config{
			Runtime: w.rt.Runtime, CheckPodsKnown: w.rt.CheckPodsKnown, Pods: w.pods.List, Events: w.events, Now: w.link.Now, Log: w.log,
			Offline: func() bool { return w.cluster == nil || w.link.State().Phase != link.Up },
			Dead:    garbage.DeadContainers{View: w.observer, Sweep: w.logs.FlushThen(w.sweepLeftovers), Remove: w.removeContainer},
		},
	})
}

// removeContainer removes a container that has ended. It needs only the pod's state in the runtime.
func (w *workerParts) removeContainer(ctx context.Context, uid types.UID, c plan.Container) error {
	seen := plan.Input{UID: uid, Observed: w.observer.Pod(uid)}
	return w.executor.Do(ctx, seen, plan.Action{Op: plan.RemoveContainer, Container: c.Name, ID: c.ID})
}

// openEviction opens the usage statistics of pods, and the eviction manager.
func (w *workerParts) openEviction() (err error) {
	pods := cgroup.Path(w.rt.CgroupDriver, w.cfg.Kubelet.CgroupRoot)
	w.usage = usage.NewForMachine(usage.Config{
		NodeName: w.cfg.Node.Name, Runtime: w.rt.Runtime, Images: w.rt.Images, Pods: w.pods.ForEach, Volumes: w.claims.Stats,
		Root: w.cfg.Dirs.Root, LogsDir: w.cfg.Kubelet.PodLogsDir, Started: time.Now(),
	}, w.rt.Cgroups, pods, w.cfg.Kubelet.SystemCgroups, w.cfg.Kubelet.VolumeStatsAggPeriod.Duration)
	w.eviction, err = eviction.NewForMachine(eviction.Config{
		Kubelet: &w.cfg.Kubelet, Hold: w.configStart.OnTrial(), Figures: w.usage, Pods: w.pods, Reclaim: w.upkeep, Events: w.events,
		Counter: w.figures, Changed: w.laterParts.pokeNode, Log: w.log,
	}, eviction.Machine{Cgroups: w.rt.Cgroups.Reader, Pods: pods, Root: w.cfg.Dirs.Root, Images: w.rt.Images})
	return err
}

// podChanged is called after each round of a pod's worker, when the worker has published its input.
func (w *workerParts) podChanged(uid types.UID) {
	w.probes.Poke(uid)
	w.pods.StatusChanged(uid)
	w.shutdown.WorkerProgressed()
	w.eviction.NotifyPodChange()
}

// observeOnce lists the pods in the runtime if the runtime already responds. It also creates the readers of the pod sources.
func (w *workerParts) observeOnce(ctx context.Context) (err error) {
	if err := w.rt.ObserveOrLoad(ctx, w.observeAndLoadProbes, w.pods.Load); err != nil {
		return err
	}
	w.manifests, err = w.sources.Runners()
	return err
}

// observeAndLoadProbes calls observeRuntime, and then loads the last probe results, which the workers need.
func (w *workerParts) observeAndLoadProbes(ctx context.Context) error {
	if err := w.featureParts.observeRuntime(ctx); err != nil {
		return err
	}
	w.pods.ForEach(w.probes.Restore)
	return nil
}

// prepareWorkers is called after observeRuntime, before the workers start. It pokes the workers of all pods that are desired or running.
func (w *workerParts) prepareWorkers(ctx context.Context) {
	for _, p := range w.desired.List() {
		w.workers.Poke(p.Pod.UID)
	}
	for _, uid := range w.observer.UIDs() {
		w.workers.Poke(uid)
	}
	w.claims.Adopt(w.pods.List())
	w.devices.Hardware.Poke() // containers may have devices from an earlier run of the agent
	w.sweepLeftovers(ctx)     // the sources may have listed their pods before the runtime responded
}

// trialFacts returns the facts from which a trial decides whether a configuration or program works.
func (w *workerParts) trialFacts(reach func(context.Context) error) configure.Node {
	return configure.Node{
		Link: w.link.State, Ready: w.health.NotReady, CheckPodsKnown: w.rt.CheckPodsKnown, PressuresMeasured: w.eviction.HasMeasured,
		Pressures: w.machine.Pressures, SourcesReported: func() bool { return w.pods.HasReported("") }, Pods: w.pods.List,
		HeldPods: w.desired.HeldPods, ReadyConfirmed: w.probes.ReadyConfirmed, CheckReachable: reach,
		BundleTrials: w.bundles,
	}
}
