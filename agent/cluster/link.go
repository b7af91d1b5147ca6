package cluster

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/net/uplink"
)

// FindLeft sets cfg.Left if the configuration has no cluster, but the node has pods of one. Such a node holds the pods until a user runs
// islet accept, because an edit of a file, or its loss, is no consent to the end of the pods. It must be called before the link is opened.
// A kubelet without --kubeconfig would end the pods.
func FindLeft(cfg *config.Config, pods []desired.Pod) {
	cfg.Left = cfg.Standalone() && slices.ContainsFunc(pods, func(p desired.Pod) bool { return p.Source == desired.API && !p.Deleting })
}

// OpenLink creates the link to the control plane. A node without an API server also has a link, which maintains the
// serving certificate. On such a node the twin is nil, and the link does not use the uplink. The parameter ips contains the
// node's addresses, for which the certificate is valid.
func OpenLink(
	ctx context.Context, cfg *config.Config, ips []netip.Addr, s *store.Store, log *slog.Logger,
) (*link.Link, *uplink.Uplink, *twin.Twin, error) {
	k := &cfg.Kubelet
	c := link.Config{
		Kubeconfig: cfg.Kubeconfig, BootstrapKubeconfig: cfg.BootstrapKubeconfig, Left: cfg.Left, CertDir: cfg.Dirs.Cert,
		NodeName: cfg.Node.Name, Hostname: cfg.Node.Name, NodeIPs: ips,
		Rotate: k.RotateCertificates, ServerTLSBootstrap: k.ServerTLSBootstrap, TLSCertFile: k.TLSCertFile, TLSKeyFile: k.TLSPrivateKeyFile,
		QPS: float32(*k.KubeAPIQPS), Burst: int(k.KubeAPIBurst), JSON: k.ContentType == config.ContentTypeJSON, Meta: s,
		IsClockSynced: host.IsClockSynced, Log: log,
	}
	up := uplink.New(uplink.Config{Bridge: cfg.Edge.BridgeName, Log: log})
	if cfg.Standalone() {
		l, err := link.New(ctx, c)
		return l, up, nil, err
	}
	other, err := twin.New(ctx, twin.Config{
		Node: cfg.Node.Name, Boot: bootid.Read(), Marks: host.New(host.Config{}).Marks, Meta: s,
		Renew: time.Duration(k.NodeLeaseDurationSeconds) * time.Second, Log: log,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	c.NetworkChanged, c.Duplicates = up.Changed(), other
	l, err := link.New(ctx, c)
	return l, up, other, err
}
