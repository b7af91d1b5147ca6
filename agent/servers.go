package agent

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/doctor"
	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/kubelet/describe"
	"github.com/islet-edge/islet/agent/kubelet/page"
	"github.com/islet-edge/islet/agent/kubelet/podsapi"
	"github.com/islet-edge/islet/agent/kubelet/ports"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/pod/figures"
	"github.com/islet-edge/islet/agent/volume/objects"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/metrics/exposition"
)

// serverParts contains the whole agent, including its servers and sockets.
type serverParts struct {
	*workerParts
	ports      *ports.Ports
	page       *page.Page      // nil if it is not configured
	podsServer *podsapi.Server // nil without the feature gate
	server     *server.Server
	criSocket  *engine.Socket // the CRI socket; nil if it is not configured
	socket     net.Listener
}

func openServers(ctx context.Context, w *workerParts) (s *serverParts, err error) {
	s = &serverParts{workerParts: w}
	if s.ports, err = ports.Open(ctx, ports.Config{Config: s.cfg, Link: s.link, Cluster: s.cluster != nil, Log: s.log}); err != nil {
		return nil, err
	}
	s.addCloser(s.ports.Close)
	s.keeper.Connect(s.trialFacts(func(ctx context.Context) error {
		return s.ports.CheckReachable(ctx, s.machine.IPs(), s.link.ClientCertificate())
	}))
	if err := s.devices.Listen(); err != nil {
		return nil, err
	}
	if s.podsServer, err = podsapi.Open(podsapi.Config{Config: s.cfg, Sockets: s.sockets, Pods: s.pods}); err != nil {
		return nil, err
	}
	s.addCloser(s.podsServer.Close)
	s.page = page.New(page.Config{ // API is called only while the page is served; s.server is set by then
		Port: s.cfg.Edge.StatusPagePort, API: func() http.Handler { return s.server.Handler() }, Machine: page.OfMachine(s.cfg.Dirs.State),
		History: filepath.Join(s.cfg.Dirs.Run, process.PageHistory), Log: s.log,
	})
	if s.server, err = server.New(s.serverConfig()); err != nil {
		return nil, err
	}
	if s.criSocket, err = engine.OpenSocket(s.cfg.Edge.CRISocket, s.rt.Streams, s.rt.Images, s.server.PodNeeding, s.sockets); err != nil {
		return nil, err
	}
	s.socket, err = s.sockets.ListenLocal(filepath.Join(s.cfg.Dirs.Run, "islet.sock"), server.MaxLocal)
	return s, err
}

func (s *serverParts) serverConfig() server.Config {
	d := describe.Config{
		Config: s.cfg, Desired: s.desired, Store: s.store, Events: s.events, NotReady: s.health.NotReady,
		HasReported: s.sources.HasReported, Local: s.objects.Local, Input: s.workers.Input, Runtime: s.rt, Network: s.rt.Network,
		Endpoint: s.rt.Endpoint, Leftovers: s.rt.Leftovers, Database: filepath.Join(s.cfg.Dirs.State, process.Database),
		Volatile: s.volatile.String(), Addresses: s.machine.PresentIPs, SlowVolumes: s.claims.SlowCalls,
		Configuration: s.keeper.Problems, Received: s.keeper.Received, Flash: s.upkeep.Flash.Figures, Machine: s.machine,
	}
	var metrics func() []exposition.Sample
	if c := s.cluster; c != nil {
		s.link.Client().Observe(s.figures.RequestObserver(s.link.Client().Host))
		s.link.ObserveRotation(s.figures.Rotated)
		d.Cluster = &describe.Cluster{Link: s.link, Outbox: c.Outbox, Objects: s.objects, Brake: c.Brake, Twin: s.twin}
		metrics = func() []exposition.Sample {
			return figures.Link(s.link, s.cfg.Kubelet.ServerTLSBootstrap, s.events.Dropped())
		}
	}
	shows := describe.New(d)
	s.bundles.SetFacts(s.version, shows.Status)
	return server.Config{
		Version: s.version, KubeVersion: config.KubernetesVersion, NodeName: s.cfg.Node.Name, LogsDir: s.cfg.Kubelet.PodLogsDir,
		Disks: []string{s.cfg.Dirs.State, s.cfg.Dirs.Root, s.cfg.Kubelet.PodLogsDir}, IgnoredFields: s.machine.IgnoredFields,
		Pods: s.pods, Origin: shows.Origin, Local: s.desired, Runtime: s.rt.Streams, Images: s.rt.Images, Decode: s.sources.DecodeLocal,
		Objects:        objects.Manifests{Local: s.objects.Local, Claims: s.objects.Claims, Desired: s.desired},
		FindRejections: s.pods.FindRejections, Bundles: shows, Backup: shows.Backup, BundleTrials: s.bundles,
		Describe: shows.Status, Details: shows.Details, Events: shows.Events, Accept: shows.Accept, TakeOver: shows.TakeOver,
		Restart: s.laterParts.restartContainer, Configuration: configure.Local{Keeper: s.keeper}, PortConflicts: s.machine.PortConflicts,
		Settings: func() any { return doctor.Settings(s.cfg) }, Usage: s.usage, Clock: describe.Clock{Link: s.link}, Shutdown: s.shutdown,
		Devices: s.devices.Show, Garbage: s.upkeep, Flash: s.upkeep.Flash.Figures, Checks: s.health.Checks(), Updates: s.updater,
		Kubelet: ports.Paths(s.cfg, process.LevelOf(s.log), s.pods.Allocated), Metrics: metrics, ProbeMetrics: s.probes,
		Collectors: slices.Concat(s.figures.Collectors(s.pods, s.desired, s.observer.LastSeen), s.credentials.Collectors(),
			s.handlers.Collectors(), s.upkeep.Collectors(), s.shutdown.Collectors(), s.keeper.Collectors(), s.objects.Collectors(),
			s.claims.Collectors(s.pods.List), s.podsServer.Collectors(), s.devices.Collectors(), s.devices.Pinning.Collectors(),
			s.plugins.Collectors(), s.bundles.Collectors(), s.volumes.Collectors(s.pods.List), s.updater.Collectors()),
		Page: s.page.HandlerAt(server.PathPage), StreamIdleTimeout: s.cfg.Kubelet.StreamingConnectionIdleTimeout.Duration, Log: s.log,
	}
}
