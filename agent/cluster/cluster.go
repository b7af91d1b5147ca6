package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/cluster/setup"
	"github.com/islet-edge/islet/edge/brake"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/history"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/edge/supervisor"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/keys"
)

// Objects is the cache of ConfigMaps, Secrets and other objects that pods use.
type Objects interface {
	// ForgetVersions causes all objects to be read again. It is called when the API server's history has
	// changed.
	ForgetVersions(ctx context.Context)
	// Retry immediately retries to read the objects that could not be read.
	Retry()
}

// Pods contains the pods of this node.
type Pods interface {
	IsWanted(types.UID) bool
	Drop(ctx context.Context, uid types.UID) error
}

// Config is the input of Open.
type Config struct {
	*config.Config
	Link    *link.Link
	Twin    *twin.Twin
	Store   *store.Store
	Objects Objects
	Events  *outbox.Events
	Pods    Pods
	Desired *desired.Desired
	Sink    brake.Sink // receives the pods bound by the API server, after the brake
	// SourcesReported reports whether all sources except the API server have reported their pods.
	SourcesReported func() bool
	Facts           func(context.Context) (node.Facts, error) // returns the facts about the machine
	// Addresses returns the machine's current addresses.
	Addresses func() []string
	// Annotations returns the annotations of the Node that report the node's configuration.
	Annotations    func() map[string]string
	Startup        node.Startup          // see node.Config
	OnPeriodicTask func()                // see node.Config
	Changed        func(*v1.Node)        // called with each version of the Node that the API server sends
	Reported       func(v1.ResourceList) // see node.Config
	Released       func()                // called when no other machine uses the node's name any more; held pods may then start
	// Networks sets the networks from which pods get their addresses. They are the Node's podCIDRs.
	Networks func(context.Context, []netip.Prefix) error
	Held     func(warning bool, reason, message string)
	Left     func() // called on a node with Config.Left when its pods of the cluster have been ended
	Log      *slog.Logger
}

// A Cluster connects the node to a control plane.
type Cluster struct {
	Node   *node.Node
	Outbox *outbox.Outbox
	Brake  *brake.Brake

	cfg          Config
	source       *source.API
	history      *history.History
	supervisor   *supervisor.Supervisor // nil unless the node belongs to a cluster of k3s
	linkUpSignal <-chan struct{}        // receives a value when the link may be up again
	nodes        chan *v1.Node          // capacity 1: the last Node that applyNodes has not applied
	known        chan struct{}          // closed when the Node is known
	setKnown     sync.Once
}

// Open creates all parts of the connection to the control plane. It makes no network call.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg, nodes: make(chan *v1.Node, 1), known: make(chan struct{})}
	client, name := cfg.Link.Client(), cfg.Config.Node.Name
	var err error
	c.Outbox, err = outbox.New(outbox.Config{
		Client: client, Node: name, NodeUID: c.NodeUID, IsWanted: cfg.Pods.IsWanted, IsReplaced: cfg.Desired.IsReplaced,
		SourcesReported: cfg.SourcesReported, Forget: cfg.Pods.Drop, Retry: cfg.Link.Changed(), Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	if c.history, err = history.New(ctx, history.Config{Client: client, Node: name, Meta: cfg.Store, AddMetaValue: cfg.Store.AddMetaValue,
		Log: cfg.Log}); err != nil {
		return nil, err
	}
	holds := brake.Config{
		Client: client, Node: name, Next: cfg.Sink, Pods: cfg.Desired.List, Epoch: c.history.Epoch, Meta: cfg.Store,
		Limit: cfg.Edge.HoldPodsFor.Duration, Now: cfg.Link.Now, Event: cfg.Held, Log: cfg.Log,
	}
	if cfg.Config.Left {
		holds.Left = cfg.Left
	}
	if c.Brake, err = brake.New(ctx, holds); err != nil {
		return nil, err
	}
	c.source, err = source.NewAPI(source.APIConfig{
		Client: client, Node: name, Sink: c.Brake, History: c.history, Relist: c.Brake.RelistRequests(), Observer: c.Outbox,
		Retry: cfg.Link.Changed(), Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	if c.Node, err = c.openNode(ctx); err != nil {
		return nil, fmt.Errorf("open the Node: %w", err)
	}
	c.applyStoredNode(ctx)
	if cfg.Edge.K3s.Directory != "" {
		if c.supervisor, err = supervisor.New(supervisor.Config{
			Directory: k3s.Directory(cfg.Edge.K3s.Directory), Node: name, Address: cfg.Kubelet.Address, Port: cfg.Kubelet.Port,
			Addresses: cfg.Addresses, Link: cfg.Link, Log: cfg.Log,
		}); err != nil {
			return nil, err
		}
	}
	c.linkUpSignal = cfg.Link.Changed().C
	return c, nil
}

func (c *Cluster) openNode(ctx context.Context) (*node.Node, error) {
	k, l, n := &c.cfg.Kubelet, c.cfg.Link, c.cfg.Config.Node
	taints := k.RegisterWithTaints
	if n.CloudProvider == "external" { // the cloud controller removes the taint
		taints = append(slices.Clone(taints), v1.Taint{Key: keys.CloudUninitialized, Value: "true",
			Effect: v1.TaintEffectNoSchedule})
	}
	return node.New(ctx, node.Config{
		Client: l.Client(), Name: n.Name, Facts: c.cfg.Facts, Meta: c.cfg.Store, History: c.history,
		LastRenewal: c.history.LastRenewal(), Duplicates: c.cfg.Twin, Startup: c.cfg.Startup, OnPeriodicTask: c.cfg.OnPeriodicTask,
		Changed: c.nodeChanged, Reported: c.cfg.Reported,
		Register: registers(k), Labels: n.Labels, RemovedLabels: removedLabels(c.cfg.Config),
		KeptAnnotations: keptAnnotations(c.cfg.Config, c.cfg.Addresses),
		Taints:          taints, ProviderID: k.ProviderID, Port: k.Port, CloudAddresses: n.CloudProvider == "external",
		StatusEvery: k.NodeStatusUpdateFrequency.Duration, ReportEvery: k.NodeStatusReportFrequency.Duration,
		LeaseFor: time.Duration(k.NodeLeaseDurationSeconds) * time.Second, MaxImages: int(*k.NodeStatusMaxImages),
		KeptNow: c.cfg.Annotations, OwnConditions: []v1.NodeConditionType{keys.ConfigurationCondition, keys.DuplicateCondition},
		Retry: l.Changed(), Now: l.Now, Log: c.cfg.Log,
	})
}

// registers reports whether the node creates its Node object.
func registers(k *kubelet.KubeletConfiguration) bool { return k.RegisterNode == nil || *k.RegisterNode }

// removedLabels returns the labels of k3s' agent that the node removes from a Node of k3s.
func removedLabels(cfg *config.Config) []string {
	switch {
	case cfg.Edge.K3s.Directory == "":
		return nil
	case cfg.Node.CloudProvider == "external":
		return supervisor.FormerLabels
	}
	return slices.Concat(supervisor.FormerLabels, supervisor.FormerAnnotations)
}

// keptAnnotations returns the annotations of the Node that are restored whenever they differ. An annotation with an empty value is removed.
// The controller manager attaches volumes only to a Node with the annotation ControllerManagedAttachDetach. As with a kubelet, another
// program sets this annotation if the node does not register itself.
func keptAnnotations(cfg *config.Config, addresses func() []string) map[string]string {
	kept := map[string]string{keys.ProvidedNodeIP: ""}
	n := cfg.Node
	if cfg.Edge.K3s.Directory != "" && n.CloudProvider != "external" {
		for _, key := range supervisor.FormerAnnotations {
			kept[key] = ""
		}
	}
	if n.CloudProvider == "external" && len(n.IPs) > 0 && !n.IPs[0].IsUnspecified() {
		kept[keys.ProvidedNodeIP] = strings.Join(addresses(), ",")
	}
	if registers(&cfg.Kubelet) {
		kept[keys.ControllerManagedAttachDetach] = ""
		if *cfg.Kubelet.EnableControllerAttachDetach {
			kept[keys.ControllerManagedAttachDetach] = "true"
		}
	}
	return kept
}

// Run runs all parts until ctx ends.
func (c *Cluster) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{c.history.Run, c.Brake.Run, c.Node.Run, c.Outbox.Run} {
		g.Go(func() error { return run(ctx) })
	}
	g.Go(func() error { return c.runOnNode(ctx, c.source.Run) })
	g.Go(func() error {
		return setup.Watch(ctx, setup.Config{State: c.cfg.Dirs.State, Link: c.cfg.Link, Console: setup.Console, Log: c.cfg.Log,
			Warn: func(reason, message string) { c.cfg.Events.Node(v1.EventTypeWarning, reason, message) }})
	})
	if c.supervisor != nil {
		g.Go(func() error { return c.supervisor.Run(ctx) })
	}
	g.Go(func() error { return c.applyNodes(ctx) })
	rewritten := c.history.WatchEpoch()
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-rewritten:
				c.cfg.Objects.ForgetVersions(ctx)
				continue
			case <-c.cfg.Twin.Changed():
				c.twinChanged()
				continue
			case <-c.linkUpSignal:
			}
			switch s := c.cfg.Link.State(); {
			case s.Phase == link.Up:
				c.cfg.Objects.Retry()
				c.Node.Poke()
			default:
				recordLinkDown(s, c.cfg.Events.Node)
			}
		}
	})
	return g.Wait()
}

// runOnNode calls run when the Node is known. The source of pods needs this, because the admission of pods uses the Node's labels, taints
// and resources. Only a new node must wait, because later starts know the stored Node.
func (c *Cluster) runOnNode(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-c.known:
	case <-ctx.Done():
	}
	return run(ctx)
}

// twinChanged is called when another machine has started or stopped using this node's name.
func (c *Cluster) twinChanged() {
	c.cfg.Link.RequestProbe()
	if c.cfg.Twin.HoldReason() == "" {
		c.cfg.Released()
	}
	if text := c.cfg.Twin.Report(); text != "" {
		c.cfg.Events.Node(v1.EventTypeWarning, keys.DuplicateCondition, text)
		c.Node.Poke()
	}
}

// recordLinkDown records an event on the Node if the link is down and an administrator must correct the cause. The event is
// sent when the link is up again.
func recordLinkDown(s link.State, event func(eventType, reason, message string)) {
	switch s.Reason {
	case link.ReasonCertificateExpired, link.ReasonUnauthorized, link.ReasonServerCertificate, link.ReasonNotServer, link.ReasonDuplicate:
		event(v1.EventTypeWarning, s.Reason, s.Message)
	}
}

// NodeUID returns the UID of the Node object, which owns the mirror pods. It returns "" if the Node was never read.
func (c *Cluster) NodeUID() types.UID {
	if n := c.Node.LastKnown(); n != nil {
		return n.UID
	}
	return ""
}
