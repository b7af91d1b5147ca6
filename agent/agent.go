package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/update"
	"github.com/islet-edge/islet/agent/cluster"
	"github.com/islet-edge/islet/agent/cluster/sources"
	"github.com/islet-edge/islet/agent/device"
	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/engine/credentials"
	"github.com/islet-edge/islet/agent/engine/pulls"
	"github.com/islet-edge/islet/agent/host/home"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/host/shutdown"
	"github.com/islet-edge/islet/agent/host/volatile"
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
	"github.com/islet-edge/islet/agent/pod/probe/lifecycle"
	"github.com/islet-edge/islet/agent/pod/status"
	"github.com/islet-edge/islet/agent/resource"
	"github.com/islet-edge/islet/agent/resource/eviction"
	"github.com/islet-edge/islet/agent/resource/settle"
	"github.com/islet-edge/islet/agent/resource/usage"
	"github.com/islet-edge/islet/agent/volume"
	"github.com/islet-edge/islet/agent/volume/objects"
	"github.com/islet-edge/islet/agent/volume/podvolumes"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/quota"
	"github.com/islet-edge/islet/internal/socket"
	"github.com/islet-edge/islet/net/uplink"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// An agent is every part of a node, built and connected.
type agent struct {
	cfg     *config.Config
	started *configure.Start
	again   context.CancelCauseFunc // ends the agent, so that the process becomes another
	version string
	log     *slog.Logger
	manager process.ServiceManager

	store     *store.Store
	rt        *engine.Containers
	observer  *observe.Observer
	desired   *desired.Desired
	executor  *worker.Executor
	workers   *worker.Set
	probes    *probe.Probes
	figures   *figures.Figures
	handlers  *lifecycle.Hooks
	can       features.Handlers // of the runtime
	hooks     hook.Chain
	cgroups   *cgroup.Pods
	devices   *device.Devices
	volumes   *podvolumes.Volumes
	claims    *volume.Claims
	plugins   *plugins.Registry
	volatile  *volatile.Layer // nil: the disk takes writes
	logs      collect.Logs
	links     *collect.Links
	pods      *pods.Pods
	settler   *settle.Settler
	shutdown  *shutdown.Shutdown
	usage     *usage.Usage
	eviction  *eviction.Eviction
	keeper    *configure.Keeper
	updater   *update.Updater
	follower  *configure.Follower // nil: the node stands alone
	machine   *machine.Machine
	reporter  *machine.Reporter
	health    health.Health
	guard     *pulls.Guard // nil: images are everybody's
	keys      *credentials.Credentials
	sources   *sources.Sources
	manifests []sources.Runner
	socket    net.Listener
	sockets   *socket.Sockets
	ports     *ports.Ports
	server    *server.Server
	tools     *engine.Socket // nil: none is configured
	link      *link.Link
	uplink    *uplink.Uplink // nil: the node stands alone
	twin      *twin.Twin     // nil: the node stands alone
	events    *outbox.Events
	objects   *objects.Objects
	quotas    quota.Projects
	upkeep    *resource.Upkeep
	cluster   *cluster.Cluster // nil: the node stands alone

	page *page.Page // nil: there is none

	closers []func() error // called in reverse
}

// A runner does its work until ctx ends and returns when all that it started has.
type runner interface {
	Run(ctx context.Context) error
}

// Run is the agent: it returns nil when ctx has ended and everything is stopped,
// but for the pods, which go on running.
// Start is what cfg comes from; again ends ctx with why.
func Run(ctx context.Context, cfg *config.Config, start *configure.Start, again context.CancelCauseFunc, version string, log *slog.Logger) (err error) {
	a := &agent{cfg: cfg, started: start, again: again, version: version, log: log, manager: process.TakeServiceManager()}
	a.settler = settle.New(settle.Config{Changed: func() <-chan struct{} { return a.pods.Changed() }, Log: log})
	defer func() { err = errors.Join(err, a.close()) }()
	if err = a.build(ctx); err == nil {
		err = a.buildServer(ctx)
	}
	if err != nil {
		if ctx.Err() != nil { // asked to end before it was there
			return nil
		}
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
	run("pod network", a.rt.Network)
	run("observer", a.observer)
	run("pods", a.pods)
	run("objects", a.objects)
	run("logs", a.rt.Rotator(a.observer))
	run("quota of logs", a.rt.LogQuota())
	run("home", home.Home{Config: a.cfg, Log: log})
	run("memory", a.settler)
	run("upkeep", a.upkeep)
	run("sockets", a.sockets)
	run("plugins", a.plugins)
	run("claims", a.claims)
	run("workers", a.rt.After(a.look, a.start, a.workers))
	run("probes", a.probes)
	run("shutdown", a.shutdown)
	run("eviction", a.eviction)
	run("database", recovery.New(recovery.Config{Runtime: a.rt.Runtime, Desired: a.desired, Store: a.store, Log: log}))
	run("devices", a.devices)
	run("configuration", a.keeper)
	run("updates", a.updater)
	run("events", a.events)
	for _, s := range a.manifests {
		run("source of pods", s)
	}
	run("link", a.link)
	if a.cluster != nil {
		run("uplink", a.uplink)
		run("cluster", a.cluster)
		run("source of configurations", a.follower)
	}
	if a.tools != nil {
		run("CRI socket", a.tools)
	}
	if a.page != nil {
		run("status page", a.page)
	}
	g.Go(func() error { return a.server.Run(ctx, a.socket) })
	g.Go(func() error { return a.ports.Run(ctx, a.server) })
	a.reporter.Started(ctx)
	if a.volatile != nil {
		a.events.Node(v1.EventTypeWarning, "FilesystemIsReadOnly", a.volatile.String()) // node-problem-detector's reason
	}
	if err := a.manager.Tell("READY=1"); err != nil {
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

// poke tells the worker of a pod that something changed. It is called by parts
// that are built before the workers; what they say then is read by start.
func (a *agent) poke(uid types.UID) {
	if a.workers != nil {
		a.workers.Poke(uid)
	}
}

func (a *agent) input(uid types.UID) plan.Input { return a.workers.Input(uid) }

func (a *agent) restart(uid types.UID, container, id string, grace time.Duration) {
	a.workers.Restart(uid, container, plan.Ask{ID: id, Grace: grace})
}

// podChanged tells of a pod that its worker looked at anew.
func (a *agent) podChanged(uid types.UID) {
	a.probes.Poke(uid)
	a.pods.StatusChanged(uid)
	a.shutdown.Touched()
	a.eviction.Touched()
}

// newEvents makes what takes the events of pods and of the node. Those of a node that
// stands alone are for islet describe and islet status only.
func (a *agent) newEvents() (*outbox.Events, error) {
	k := &a.cfg.Kubelet
	c := outbox.EventsConfig{Node: a.cfg.Node.Name, QPS: float64(*k.EventRecordQPS), Burst: int(k.EventBurst), Now: a.link.Now, Store: a.store, Spare: func() bool { return a.upkeep.Flash.Exceeded() }, Log: a.log}
	if !a.cfg.Alone() {
		c.Client, c.Retry = a.link.Client(), a.link.Changed()
	}
	return outbox.NewEvents(c)
}

// nodeChanged takes what the control plane says of this node: its labels, and what others
// advertise there.
func (a *agent) nodeChanged(n *v1.Node) {
	if a.machine.SetNode(n.Labels, n.Spec.Taints, n.Status.Capacity) {
		a.pods.NodeChanged()
	}
	a.claims.NodeChanged()
	a.follower.Node(n)
	a.reporter.Schedulable(!n.Spec.Unschedulable)
}

// tellHeld tells that pods run on which the control plane has lost, or no longer do.
func (a *agent) tellHeld(warning bool, reason, message string) {
	kind := v1.EventTypeNormal
	if warning {
		kind = v1.EventTypeWarning
	}
	a.events.Node(kind, reason, message)
}

// wantedChanged tells of a pod that is wanted otherwise than before: its labels and
// annotations may be shown in its volumes.
func (a *agent) wantedChanged(uid types.UID) {
	a.poke(uid)
	if a.cluster != nil {
		a.objects.Changed(uid)
	}
}

// host is what the statuses of pods say of this node.
func (a *agent) host() status.Host {
	h := a.machine.Host()
	h.ReadOnlyTrees, h.Devices, h.Unplugged = a.can.ReadOnlyTrees, a.devices.Status, a.devices.Hardware.Missing
	return h
}

// start pokes all pods that are wanted, and all of which something runs.
func (a *agent) start(ctx context.Context) {
	for _, p := range a.desired.List() {
		a.workers.Poke(p.Pod.UID)
	}
	for _, uid := range a.observer.UIDs() {
		a.workers.Poke(uid)
	}
	a.claims.Adopt(a.pods.List())
	a.devices.Hardware.Poke() // what runs may have devices of before
	a.sweep(ctx)              // the sources may have spoken before there was a runtime
}

// networkChanged has pods on a network of before replaced, and lets those that wait
// for one try again. The API server learns of it at once.
func (a *agent) networkChanged() {
	if a.workers != nil {
		a.workers.Retry()
	}
	a.reportNode()
}

// reportNode has the API server learn at once how the node is.
func (a *agent) reportNode() {
	if a.cluster != nil {
		a.cluster.Node.Poke()
	}
}

// imagesChanged lets pods that wait for an image try again.
func (a *agent) imagesChanged() {
	if a.workers != nil {
		a.executor.ImagesChanged()
		a.workers.Retry()
	}
}
