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

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/link"
	edgenode "github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/net/uplink"
)

// cluster is what a node that belongs to a control plane has besides. None of it
// is waited for: pods run from the store before the link is up.
//
//	link --client--> node, objects, outbox, events, source
//	source --Set, Update--> desired ...... worker
//	   '--Listed, Seen, Gone--> outbox <--Put, Finish-- pods
type cluster struct {
	link    *link.Link // the agent's
	node    *edgenode.Node
	objects *objects
	outbox  *outbox.Outbox
	events  *outbox.Events // the agent's
	source  *source.API

	up <-chan struct{} // the link may be up again
}

// joins reports whether the configuration names a control plane.
func (a *agent) joins() bool { return a.cfg.Kubeconfig != "" || a.cfg.BootstrapKubeconfig != "" }

// openCluster makes every part of the way to the control plane. It asks nobody.
func openCluster(ctx context.Context, a *agent) (*cluster, error) {
	c := &cluster{link: a.link, events: a.events}
	client := c.link.Client()
	var err error
	if c.objects, err = openObjects(ctx, a, client, c.link.Now); err != nil {
		return nil, err
	}
	c.outbox, err = outbox.New(outbox.Config{
		Client: client, Node: a.cfg.Node.Name, NodeUID: c.nodeUID, Wanted: a.pods.wanted, Spoken: a.othersSpoken, Forget: a.pods.forget,
		Retry: c.link.Changed(), Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	c.source, err = source.NewAPI(source.APIConfig{
		Client: client, Node: a.cfg.Node.Name, Sink: sink{a.desired, a}, Observer: c.outbox, Retry: c.link.Changed(), Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	if c.node, err = a.openNode(ctx, c.link); err != nil {
		return nil, fmt.Errorf("the Node: %w", err)
	}
	c.up = c.link.Changed()
	return c, nil
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
		NodeName: a.cfg.Node.Name, Hostname: a.cfg.Node.Name, NodeIPs: a.node.ips(),
		Rotate: k.RotateCertificates, ServerTLSBootstrap: k.ServerTLSBootstrap, TLSCertFile: k.TLSCertFile, TLSKeyFile: k.TLSPrivateKeyFile,
		QPS: float32(*k.KubeAPIQPS), Burst: int(k.KubeAPIBurst), Meta: a.store, NetworkChanged: changed, Log: a.log,
	})
}

func (a *agent) openNode(ctx context.Context, l *link.Link) (*edgenode.Node, error) {
	k := &a.cfg.Kubelet
	taints, annotations := k.RegisterWithTaints, map[string]string{}
	if *k.EnableControllerAttachDetach {
		annotations["volumes.kubernetes.io/controller-managed-attach-detach"] = "true"
	}
	if a.cfg.Node.CloudProvider == "external" { // whose controller takes the taint away
		taints = append(slices.Clone(taints), v1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule})
		if len(a.cfg.Node.IPs) > 0 {
			annotations["alpha.kubernetes.io/provided-node-ip"] = strings.Join(a.node.now().IPs, ",")
		}
	}
	return edgenode.New(ctx, edgenode.Config{
		Client: l.Client(), Name: a.cfg.Node.Name, Facts: a.facts(), Meta: a.store, Changed: a.nodeChanged,
		Register: k.RegisterNode == nil || *k.RegisterNode, Labels: a.cfg.Node.Labels, Annotations: annotations, Taints: taints,
		ProviderID: k.ProviderID, Port: k.Port,
		StatusEvery: k.NodeStatusUpdateFrequency.Duration, ReportEvery: k.NodeStatusReportFrequency.Duration,
		LeaseFor: time.Duration(k.NodeLeaseDurationSeconds) * time.Second, MaxImages: int(*k.NodeStatusMaxImages),
		Retry: l.Changed(), Now: l.Now, Log: a.log,
	})
}

// Run keeps all of it until ctx ends.
func (c *cluster) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range []runner{c.node, c.objects, c.outbox, c.events, c.source} {
		g.Go(func() error { return r.Run(ctx) })
	}
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
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
// its pods get their addresses from, and its labels.
func (a *agent) nodeChanged(n *v1.Node) {
	a.node.setLabels(n.Labels)
	a.tellSchedulable(!n.Spec.Unschedulable)
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
	if err := a.rt.network.SetPodCIDRs(context.Background(), cidrs); err != nil {
		a.log.Error("the Node's podCIDRs cannot be used", "podCIDRs", n.Spec.PodCIDRs, "error", err)
	}
}

// othersSpoken reports whether all sources but the API server have said what
// they want.
func (a *agent) othersSpoken() bool {
	return a.spoken(desired.File) && a.spoken(desired.HTTP) && a.spoken(desired.Local)
}
