package agent

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/bundle"
	"github.com/islet-edge/islet/agent/cluster/sources"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/host/shutdown"
	"github.com/islet-edge/islet/agent/kubelet/health"
	"github.com/islet-edge/islet/agent/pod/life/features"
	"github.com/islet-edge/islet/agent/pod/life/pods"
	"github.com/islet-edge/islet/agent/pod/life/rebuild"
	"github.com/islet-edge/islet/agent/pod/machine"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/status"
	"github.com/islet-edge/islet/agent/resource/idlememory"
	"github.com/islet-edge/islet/agent/volume/objects"
	"github.com/islet-edge/islet/internal/quota"
)

// podParts contains the parts for the pods of the node: the objects that pods read, the sources of pods, the decisions
// about pods, and the shutdown of all pods.
type podParts struct {
	*runtimeParts
	settler         *idlememory.Settler
	quotas          quota.Projects
	objects         *objects.Objects
	handlerFeatures features.Handlers // the features of the runtime's handlers
	sources         *sources.Sources
	shutdown        *shutdown.Shutdown
	pods            *pods.Pods
	health          health.Health
	reporter        *machine.Reporter
}

func openPods(ctx context.Context, r *runtimeParts) (p *podParts, err error) {
	p = &podParts{runtimeParts: r, settler: idlememory.New(idlememory.Config{Changed: r.laterParts.podsChanged, Log: r.log})}
	if err := p.openObjects(ctx); err != nil {
		return nil, err
	}
	p.sources = sources.New(sources.Config{
		Config: p.cfg, HasServer: !p.cfg.Standalone(), Desired: p.desired, Objects: p.objects.Local, OnFirstReport: p.sourceReported,
		HasBundle: p.bundles.InUse(), Events: p.events, Log: p.log,
	})
	if p.shutdown, err = shutdown.New(ctx, shutdown.Config{
		Periods: shutdown.Periods(&p.cfg.Kubelet), Host: shutdown.SystemLogind(p.log), Meta: p.store,
		File: filepath.Join(p.cfg.Dirs.Run, process.Shutdown), Pods: p.laterParts.listPods,
		AtRest: func(uid types.UID) bool { return plan.AtRest(p.laterParts.Input(uid)) },
		Poke:   p.laterParts.pokePod, Changed: p.shutdownChanged, Extend: p.manager.Extend, Events: p.events, Log: p.log,
	}); err != nil {
		return nil, err
	}
	p.pods = pods.New(pods.Config{
		Desired: p.desired, Store: p.store, Workers: &p.laterParts, HasReported: p.sources.HasReported, Sources: sources.Names,
		Node: p.machine.Admit, Host: p.hostFacts, OnStatus: p.figures.RecordStatus, Admissions: p.figures, IsBarred: p.laterParts.isBarred,
		SandboxVersion: rebuild.SandboxVersions{Runtime: p.rt.Runtime, View: p.observer, Log: p.log}.Pod,
		ShuttingDown:   p.shutdown.InProgress, Resizes: p.figures, Devices: p.devices, InRuntime: p.observer.UIDs, Events: p.events,
		Log: p.log,
	})
	p.laterParts.pods.set(p.pods)
	ofNode := bundle.Pods{Sink: p.sources.Sink(), List: p.pods.List, Desired: p.desired, Objects: p.objects.Local}
	p.bundles.Connect(ofNode, p.keeper, p.updater)
	p.health = health.New(health.Config{
		StartDelay: p.laterParts.startDelay, CallDuration: p.observer.CallDuration, Network: p.rt.Ready, StartsBlocked: p.shutdown.NotReady,
	})
	p.reporter = machine.NewReporter(machine.ReporterConfig{
		Machine: p.machine, Runtime: p.rt.Runtime, Images: p.rt.Images, NotReady: p.health.NotReady, Addresses: p.link.SetAddresses,
		Conditions: p.keeper.Conditions, Events: p.events, Meta: p.store, Log: p.log,
		InUse: func() []v1.UniqueVolumeName { return p.laterParts.claims.get().VolumesInUse() },
	})
	return p, nil
}

// openObjects opens the ConfigMaps, Secrets and claims that pods read.
func (p *podParts) openObjects(ctx context.Context) (err error) {
	p.objects, err = objects.Open(ctx, objects.Config{
		Client: p.link.Client(), Standalone: p.cfg.Standalone(), Store: p.store, Dir: filepath.Join(p.cfg.Dirs.State, process.Claims),
		Quota: &p.quotas, Node: p.cfg.Node.Name,
		Strategy: string(p.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy), Every: p.cfg.PollPeriod(),
		OnPeriodicTask: p.settler.TaskRan, Now: p.link.Now, Desired: p.desired, Events: p.events, NodeUID: p.laterParts.nodeUID, Log: p.log,
		Refresh: p.refreshVolumes, Retry: p.laterParts.retryPod,
	})
	if err != nil {
		return err
	}
	p.handlerFeatures = features.Handlers{Runtime: p.rt.Runtime, Classes: features.ClassIsHandler{}}
	if p.objects.API != nil {
		p.handlerFeatures.Classes = p.objects.API
	}
	return nil
}

// refreshVolumes writes changed objects into the volumes of a pod.
func (p *podParts) refreshVolumes(pod *v1.Pod) error {
	return p.laterParts.volumes.get().Refresh(p.pods.Allocated(pod))
}

// sourceReported is called when a source has listed its pods for the first time. From now on, running pods that no source
// wants may end, and leftovers of removed pods may be deleted.
func (p *podParts) sourceReported(ctx context.Context) {
	p.laterParts.pokePods()
	if sweep := p.laterParts.sweepLeftovers.get(); sweep != nil {
		sweep(ctx)
	}
}

// shutdownChanged is called when the machine is about to shut down, and when the shutdown is cancelled.
func (p *podParts) shutdownChanged() {
	p.laterParts.pokeNode()
	p.pods.NodeChanged()
}

// hostFacts returns the facts about the node that the statuses of pods contain.
func (p *podParts) hostFacts() status.Host {
	h := p.machine.Host()
	h.ReadOnlyTrees, h.Devices, h.MissingDevices = p.handlerFeatures.ReadOnlyTrees, p.devices.Status, p.devices.Hardware.MissingDevices
	return h
}
