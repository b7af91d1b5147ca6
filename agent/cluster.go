package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/objects"
	"github.com/islet-edge/islet/edge/brake"
	"github.com/islet-edge/islet/edge/history"
	"github.com/islet-edge/islet/edge/link"
	edgenode "github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/keys"
	"github.com/islet-edge/islet/net/uplink"
)

// cluster is what a node that belongs to a control plane has besides. None of it
// is waited for: pods run from the store before the link is up.
//
//	link --client--> node, objects, outbox, events, source
//	node --renewals--> history --rewritten--> source, objects, node
//	source --Set, Update--> brake --> desired ...... worker
//	   '--Listed, Seen, Gone--> outbox <--Put, Finish-- pods
type cluster struct {
	link    *link.Link // the agent's
	node    *edgenode.Node
	objects *objects.Objects // the agent's
	outbox  *outbox.Outbox
	events  *outbox.Events // the agent's
	source  *source.API
	history *history.History
	brake   *brake.Brake

	up <-chan struct{} // the link may be up again
}

// joins reports whether the configuration names a control plane.
func (a *agent) joins() bool { return a.cfg.Kubeconfig != "" || a.cfg.BootstrapKubeconfig != "" }

// openCluster makes every part of the way to the control plane. It asks nobody.
func openCluster(ctx context.Context, a *agent) (*cluster, error) {
	c := &cluster{link: a.link, events: a.events, objects: a.objects}
	client := c.link.Client()
	var err error
	c.outbox, err = outbox.New(outbox.Config{
		Client: client, Node: a.cfg.Node.Name, NodeUID: c.nodeUID, Wanted: a.pods.Wanted, Spoken: a.sources.OthersSpoken, Forget: a.pods.Drop,
		Retry: c.link.Changed(), Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	if c.history, err = history.New(ctx, history.Config{Client: client, Node: a.cfg.Node.Name, Meta: a.store, Log: a.log}); err != nil {
		return nil, err
	}
	c.brake, err = brake.New(ctx, brake.Config{
		Client: client, Node: a.cfg.Node.Name, Next: a.sources.Sink(), Pods: a.desired.List, Epoch: c.history.Epoch, Meta: a.store,
		Limit: a.cfg.Edge.HoldPodsFor.Duration, Now: c.link.Now, Event: a.tellHeld, Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	c.source, err = source.NewAPI(source.APIConfig{
		Client: client, Node: a.cfg.Node.Name, Sink: c.brake, History: c.history, Again: c.brake.Again(), Observer: c.outbox, Retry: c.link.Changed(), Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	if c.node, err = a.openNode(ctx, c); err != nil {
		return nil, fmt.Errorf("the Node: %w", err)
	}
	c.up = c.link.Changed()
	return c, nil
}

// tellHeld tells that pods run on which the control plane has lost, or no longer do.
func (a *agent) tellHeld(warning bool, reason, message string) {
	kind := v1.EventTypeNormal
	if warning {
		kind = v1.EventTypeWarning
	}
	a.events.Node(kind, reason, message)
}

// openLink makes the way to the control plane. A node that stands alone has one
// too: it leads nowhere, but keeps the node's serving certificate.
func (a *agent) openLink(ctx context.Context) (*link.Link, error) {
	k := &a.cfg.Kubelet
	var changed <-chan struct{}
	if a.joins() {
		a.uplink = uplink.New(uplink.Config{Bridge: a.cfg.Edge.BridgeName, Log: a.log})
		changed = a.uplink.Changed()
	}
	return link.New(ctx, link.Config{
		Kubeconfig: a.cfg.Kubeconfig, BootstrapKubeconfig: a.cfg.BootstrapKubeconfig, CertDir: a.cfg.Dirs.Cert,
		NodeName: a.cfg.Node.Name, Hostname: a.cfg.Node.Name, NodeIPs: a.machine.IPs(),
		Rotate: k.RotateCertificates, ServerTLSBootstrap: k.ServerTLSBootstrap, TLSCertFile: k.TLSCertFile, TLSKeyFile: k.TLSPrivateKeyFile,
		QPS: float32(*k.KubeAPIQPS), Burst: int(k.KubeAPIBurst), Meta: a.store, NetworkChanged: changed, Log: a.log,
	})
}

func (a *agent) openNode(ctx context.Context, c *cluster) (*edgenode.Node, error) {
	k, l := &a.cfg.Kubelet, c.link
	taints, annotations, kept := k.RegisterWithTaints, map[string]string{}, map[string]string{keys.ProvidedNodeIP: ""}
	if *k.EnableControllerAttachDetach {
		annotations[keys.ControllerManagedAttachDetach] = "true"
	}
	if a.cfg.Node.CloudProvider == "external" { // whose controller takes the taint away
		taints = append(slices.Clone(taints), v1.Taint{Key: keys.CloudUninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
		if n := a.cfg.Node.IPs; len(n) > 0 && !n[0].IsUnspecified() {
			kept[keys.ProvidedNodeIP] = strings.Join(a.machine.Now().IPs, ",")
		}
	}
	return edgenode.New(ctx, edgenode.Config{
		Client: l.Client(), Name: a.cfg.Node.Name, Facts: a.reporter.Facts, Meta: a.store, History: c.history, Renewed: a.settler.Touched,
		Changed: func(n *v1.Node) {
			c.brake.Registered(context.WithoutCancel(ctx), n.UID)
			a.nodeChanged(n)
		},
		Register: k.RegisterNode == nil || *k.RegisterNode, Labels: a.cfg.Node.Labels, Annotations: annotations, Kept: kept, Taints: taints,
		ProviderID: k.ProviderID, Port: k.Port, CloudAddresses: a.cfg.Node.CloudProvider == "external",
		StatusEvery: k.NodeStatusUpdateFrequency.Duration, ReportEvery: k.NodeStatusReportFrequency.Duration,
		LeaseFor: time.Duration(k.NodeLeaseDurationSeconds) * time.Second, MaxImages: int(*k.NodeStatusMaxImages),
		Retry: l.Changed(), Now: l.Now, Log: a.log,
	})
}

// Run keeps all of it until ctx ends.
func (c *cluster) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range []runner{c.history, c.brake, c.node, c.outbox, c.source} {
		g.Go(func() error { return r.Run(ctx) })
	}
	rewritten := c.history.Rewritten()
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-rewritten:
				c.objects.ForgetVersions(ctx)
				continue
			case <-c.up:
			}
			switch s := c.link.State(); {
			case s.Phase == link.Up:
				c.objects.Retry()
				c.node.Poke()
			case s.Reason == link.ReasonCertificateExpired, s.Reason == link.ReasonUnauthorized, s.Reason == link.ReasonServerCertificate:
				c.events.Node(v1.EventTypeWarning, s.Reason, s.Message) // the API server learns of it once somebody helped
			}
		}
	})
	return g.Wait()
}

// nodeUID is that of the Node object, which owns the mirror pods.
func (c *cluster) nodeUID() types.UID {
	if n := c.node.Last(); n != nil {
		return n.UID
	}
	return ""
}

// nodeChanged takes what the control plane says of this node: the networks that
// its pods get their addresses from, its labels, and what others advertise there.
func (a *agent) nodeChanged(n *v1.Node) {
	if a.machine.SetNode(n.Labels, n.Spec.Taints, n.Status.Capacity) {
		a.pods.NodeChanged()
	}
	a.claims.NodeChanged()
	a.reporter.Schedulable(!n.Spec.Unschedulable)
	var cidrs []netip.Prefix
	for _, s := range n.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a.log.Error("the Node's podCIDRs are no networks", "podCIDR", s, "error", err)
			return
		}
		cidrs = append(cidrs, p)
	}
	if len(cidrs) == 0 {
		return
	}
	if err := a.rt.Network.SetPodCIDRs(context.Background(), cidrs); err != nil {
		a.log.Error("the Node's podCIDRs cannot be used", "podCIDRs", n.Spec.PodCIDRs, "error", err)
	}
}
