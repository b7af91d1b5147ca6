package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device"
	"github.com/islet-edge/islet/agent/device/hardware"
	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/engine/credentials"
	"github.com/islet-edge/islet/agent/engine/pulls"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/agent/pod/collect"
	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/life/rebuild"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/agent/pod/probe/lifecycle"
	"github.com/islet-edge/islet/agent/pod/spec/portconflict"
	"github.com/islet-edge/islet/agent/pod/spec/realtime"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/agent/pod/spec/userns"
	"github.com/islet-edge/islet/agent/volume"
	"github.com/islet-edge/islet/agent/volume/podvolumes"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/runtime/cgroup"
	"github.com/islet-edge/islet/runtime/selinux"
)

// featureParts contains the parts that prepare the environment of a pod on this machine, such as cgroups and volumes.
// Most of them are hooks. They are called when a pod is prepared and when it is released.
type featureParts struct {
	*clusterParts
	cgroups     *cgroup.Pods
	credentials *credentials.Credentials
	verifier    *pulls.Verifier // nil if every pod may use every image
	claims      *volume.Claims
	volumes     *podvolumes.Volumes
	plugins     *plugins.Registry
	calls       *call.Caller
	handlers    *lifecycle.Hooks
	logs        *collect.Logs
	hooks       hook.Chain
}

func newFeatures(ctx context.Context, c *clusterParts) (f *featureParts, err error) {
	f = &featureParts{clusterParts: c}
	if err := f.startDevices(ctx); err != nil {
		return nil, err
	}
	if f.cgroups, err = f.rt.OpenCgroups(engine.Share{
		Config: f.cfg, Share: f.machine.Share(), Active: f.pods.List, Exclusive: f.devices.Pinning.Pod, RealTime: f.machine.RealTimeBudget,
		ObserveDuration: f.figures.Cgroup, Protected: f.figures.Protected, RecordEvent: f.events.Record, Log: f.log}); err != nil {
		return nil, err
	}
	if err = f.openCredentials(); err != nil {
		return nil, err
	}
	if err = f.openVolumes(ctx); err != nil {
		return nil, err
	}
	f.calls = call.New(call.Config{Runtime: f.rt.Runtime, Version: config.KubernetesMinor, GateEnabled: f.cfg.GateEnabled})
	if f.handlers, err = lifecycle.Open(lifecycle.Config{Caller: f.calls, Events: f.events,
		Dir: filepath.Join(f.cfg.Dirs.Run, process.Hooks), State: f.cfg.Dirs.State, Log: f.log}); err != nil {
		return nil, err
	}
	f.logs = collect.NewLogs(f.cfg, f.log)
	f.devices.Pinning.Connect(f.rt.Runtime)
	f.machine.SetObserved(f.observer.Pod)
	f.hooks = f.hookChain()
	f.laterParts.sweepLeftovers.set(f.sweepLeftovers)
	return f, nil
}

// startDevices finds the devices of the host that the configuration provides to containers, and starts the
// preparation of ResourceClaims by the DRA drivers.
func (f *featureParts) startDevices(ctx context.Context) error {
	var cluster *device.Cluster
	if api := f.objects.API; api != nil {
		cluster = &device.Cluster{Objects: api, Client: f.link.Client(), Node: f.cfg.Node.Name, Up: f.link.Changed()}
	}
	return f.devices.Start(ctx, cluster, hardware.Config{
		Classes: f.cfg.Edge.Devices, Meta: f.store, Events: f.events, Dir: filepath.Join(f.cfg.Dirs.Run, process.Devices), Log: f.log,
		Restart: func(uid types.UID, container string, grace time.Duration) {
			if last, ok := f.observer.Pod(uid).Newest(container); ok {
				f.laterParts.restartContainer(uid, container, last.ID, grace)
			}
		},
	})
}

// openCredentials opens the registry credentials, and the records of which pods may use an image without credentials.
func (f *featureParts) openCredentials() (err error) {
	c := credentials.Config{
		Plugins: f.cfg.CredentialProviderConfig, BinDir: f.cfg.CredentialProviderBinDir, Root: f.cfg.Dirs.Root, Meta: f.store,
		Down: f.link.IsDown, Secrets: f.objects, Log: f.log,
	}
	if f.objects.API != nil {
		c.API = f.objects.API
	}
	if f.credentials, err = credentials.Open(c); err != nil {
		return err
	}
	f.addCloser(f.credentials.Close)
	f.bundles.ConnectServers(f.credentials, f.laterParts.flashExceeded)
	if f.verifier, err = pulls.Open(&f.cfg.Kubelet, pulls.Config{
		Store: f.store, Images: f.rt.Images, HasIncomplete: f.rt.HasIncompleteImages, Log: f.log}); f.verifier != nil {
		f.laterParts.verifier.set(f.verifier)
	}
	return err
}

// openVolumes opens the volumes of pods, including PersistentVolumeClaims, and the registry of CSI and DRA plugins.
func (f *featureParts) openVolumes(ctx context.Context) (err error) {
	var api *volume.Cluster
	if o := f.objects.API; o != nil {
		api = &volume.Cluster{Client: f.link.Client(), Objects: o, Node: f.cluster.Node, Up: f.link.Changed()}
	}
	if f.claims, err = volume.Open(ctx, volume.Config{
		Config: f.cfg, Store: f.store, Labels: f.machine.Labels, Objects: f.objects.Claims, Cluster: api, Events: f.events,
		Retry: f.laterParts.retryPod, Label: selinux.New().Files(), Log: f.log,
		Reject: func(p *v1.Pod, reason, message string) bool {
			return f.pods.Evict(ctx, p.UID, plan.End{Reason: reason, Message: "Pod was rejected: " + message})
		},
	}); err != nil {
		return err
	}
	f.laterParts.claims.set(f.claims)
	if f.volumes, err = podvolumes.New(podvolumes.Config{
		Root: f.cfg.Dirs.Root, Quota: &f.quotas, Memory: f.machine.AllocatableMemory, Hostname: f.machine.Hostname,
		Fields: translate.Fields{Node: f.machine.Now}, Objects: f.objects, ReadOnlyTrees: f.handlerFeatures.ReadOnlyTrees,
		Kinds: []podvolumes.Kind{f.claims.Mounter}, Log: f.log,
		Modes: f.cfg.GateEnabled(config.GateEmptyDirMode), Owners: f.cfg.GateEnabled(config.GateFileOwners),
	}); err != nil {
		return err
	}
	f.laterParts.volumes.set(f.volumes)
	f.plugins, err = plugins.New(plugins.Config{
		Root: f.cfg.Dirs.Root, Handlers: f.devices.Handle(f.claims.Handle(map[string]plugins.Handler{})), Log: f.log,
	})
	return err
}

// hookChain returns the hooks in the order in which they prepare a pod. They release it in reverse order.
func (f *featureParts) hookChain() hook.Chain {
	return hook.Chain{
		twin.Hold{Twin: f.twin, IsRunning: func(uid types.UID) bool {
			sb, ok := f.observer.Pod(uid).Sandbox()
			return ok && sb.Ready
		}},
		// The cgroups come early, because the memory that later hooks use, such as the memory of a tmpfs, is charged to the pod's cgroup.
		f.cgroups,
		// The objects come before the hooks that read them.
		f.objects, f.objects.Claims,
		f.volumes, f.devices.Pinning, f.devices.Manager, f.devices.Dynamic, f.logs, rebuild.Manifest{},
		realtime.Hook{Node: f.machine.RealTime, Pods: f.pods.List},
		portconflict.Hook{Host: os.DirFS("/"), Events: f.events, Log: f.log},
		// The user namespaces come last, because they map the mounts of all other hooks.
		userns.New(userns.Config{Pods: f.volumes.Pods(), Space: func() (userns.Space, error) {
			return userns.HostSpace(f.cfg.IDsPerPod(), int(f.cfg.Kubelet.MaxPods))
		}, Handlers: f.handlerFeatures, Log: f.log}),
	}
}

// observeRuntime lists the sandboxes and containers in the runtime, and updates all records to match them. Before that, no pod
// is started, ended or removed.
func (f *featureParts) observeRuntime(ctx context.Context) error {
	if err := f.observer.Relist(ctx); err != nil {
		return fmt.Errorf("list the containers: %w", err)
	}
	rebuild.Begin(ctx, rebuild.Config{
		Runtime: f.rt.Runtime, Desired: f.desired, Store: f.store, Environments: f.objects, Log: f.log,
	})
	if err := f.rt.Reconcile(ctx); err != nil {
		f.log.Warn("some leftovers of removed pods could not be cleaned up", "error", err)
	}
	if err := f.verifier.Reconcile(ctx); err != nil {
		f.log.Error("the records of image pulls could not be updated", "error", err)
	}
	if err := f.handlers.Prune(f.observer.HasContainer); err != nil {
		f.log.Warn("some records of hooks and interruptions of removed containers could not be deleted", "error", err)
	}
	if err := f.pods.Load(ctx, f.observer.UIDs()); err != nil {
		return fmt.Errorf("load the pods: %w", err)
	}
	f.rt.MarkObserved(ctx, f.machine.SetRuntime)
	return nil
}

// sweepLeftovers removes the directories, mounts, logs and prepared claims of pods that no source wants and that have no container in
// the runtime. It does nothing before all sources have listed their pods.
func (f *featureParts) sweepLeftovers(ctx context.Context) {
	if !f.pods.HasReported("") || f.rt.CheckPodsKnown() != nil {
		return
	}
	keep := func(uid types.UID) bool {
		_, wanted := f.desired.Get(uid)
		return wanted || len(f.observer.Pod(uid).Sandboxes)+len(f.observer.Pod(uid).Containers) > 0
	}
	f.devices.Dynamic.Sweep(keep)
	if err := f.sweepExcept(ctx, keep); err != nil {
		f.log.Warn("some leftovers of removed pods could not be removed", "error", err)
	}
}

func (f *featureParts) sweepExcept(ctx context.Context, keep func(types.UID) bool) error {
	return errors.Join(f.volumes.Sweep(ctx, keep), f.logs.Sweep(ctx, keep))
}
