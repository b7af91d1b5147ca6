package cluster

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/net/uplink"
)

// OpenLink makes the way to the control plane. A node that stands alone has one too: it
// leads nowhere, but keeps the node's serving certificate, which is for ips. The uplink is
// nil then.
func OpenLink(ctx context.Context, cfg *config.Config, ips []netip.Addr, s *store.Store, log *slog.Logger) (*link.Link, *uplink.Uplink, error) {
	k := &cfg.Kubelet
	var up *uplink.Uplink
	var changed <-chan struct{}
	if !cfg.Alone() {
		up = uplink.New(uplink.Config{Bridge: cfg.Edge.BridgeName, Log: log})
		changed = up.Changed()
	}
	l, err := link.New(ctx, link.Config{
		Kubeconfig: cfg.Kubeconfig, BootstrapKubeconfig: cfg.BootstrapKubeconfig, CertDir: cfg.Dirs.Cert,
		NodeName: cfg.Node.Name, Hostname: cfg.Node.Name, NodeIPs: ips,
		Rotate: k.RotateCertificates, ServerTLSBootstrap: k.ServerTLSBootstrap, TLSCertFile: k.TLSCertFile, TLSKeyFile: k.TLSPrivateKeyFile,
		QPS: float32(*k.KubeAPIQPS), Burst: int(k.KubeAPIBurst), JSON: k.ContentType == config.ContentTypeJSON, Meta: s, NetworkChanged: changed, Log: log,
	})
	return l, up, err
}
