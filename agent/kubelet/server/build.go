package server

import (
	"slices"

	"github.com/islet-edge/islet/agent/kubelet/server/local/images"
	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/agent/kubelet/server/local/pods"
	"github.com/islet-edge/islet/agent/kubelet/server/local/status"
	"github.com/islet-edge/islet/agent/kubelet/server/logs"
	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/stats"
	"github.com/islet-edge/islet/agent/kubelet/server/streams"
	"github.com/islet-edge/islet/agent/kubelet/server/zpages"
	"github.com/islet-edge/islet/runtime/cri"
)

// buildKubelet creates the packages that serve the paths of a kubelet.
func (s *Server) buildKubelet() {
	c := &s.Config
	s.pages = zpages.New(zpages.Config{
		Version: c.Version, KubeVersion: c.KubeVersion, Started: s.started, Checks: c.Checks, Configuration: c.Kubelet.Config,
		Flags: c.Kubelet.Flags, SetLogLevel: c.Kubelet.SetLevel, Log: c.Log,
	})
	s.lister = podlist.New(podlist.Config{Pods: c.Pods, Runtime: c.Runtime, Allocated: c.Kubelet.Allocated})
	s.streams = streams.New(streams.Config{Pods: c.Pods, Runtime: c.Runtime, CheckpointsDir: c.Kubelet.Checkpoints,
		CheckpointTimeout: c.Kubelet.CheckpointTimeout, IdleTimeout: c.StreamIdleTimeout, Log: c.Log})
	s.logs = logs.New(logs.Config{Pods: c.Pods, Runtime: c.Runtime, Dir: c.LogsDir, SystemDir: c.Kubelet.SystemLogs,
		IdleTimeout: c.StreamIdleTimeout})
	s.stats = stats.New(stats.Config{
		Version: c.Version, KubeVersion: c.KubeVersion, NodeName: c.NodeName, Started: s.started, Pods: c.Pods, Runtime: c.Runtime,
		Usage: c.Usage, Flash: c.Flash, LinkMetrics: c.Metrics, Probes: c.ProbeMetrics, Log: c.Log,
		Collectors: slices.Concat(s.requestCounts.collectors(), s.streams.Collectors(), c.Collectors),
	})
}

// buildLocal creates the packages that serve islet's own paths.
func (s *Server) buildLocal() {
	c := &s.Config
	s.status = status.New(status.Config{
		Version: c.Version, Name: c.NodeName, Started: s.started, Disks: c.Disks, Pods: c.Pods, Runtime: c.Runtime, Describe: c.Describe,
		IgnoredFields: c.IgnoredFields, PortConflicts: c.PortConflicts, LastLine: s.logs.LastLine, Settings: c.Settings,
	})
	s.pods = pods.New(pods.Config{
		Lister: c.Pods, Local: c.Local, Usage: c.Usage, Runtime: c.Runtime, Objects: c.Objects, Decode: c.Decode,
		IgnoredFields: c.IgnoredFields, FindRejections: c.FindRejections, Describe: c.Describe, Details: c.Details, Origin: c.Origin,
		ContainerRoot: c.ContainerRoot, Restart: c.Restart, IdleTimeout: c.StreamIdleTimeout, Log: c.Log,
	})
	layers, _ := c.Images.(cri.Layers)
	s.node = node.New(node.Config{
		Version: c.Version, Name: c.NodeName, Usage: c.Usage, Layers: layers, Events: c.Events, Accept: c.Accept, TakeOver: c.TakeOver,
		Devices: c.Devices, Clock: c.Clock, Shutdown: c.Shutdown, Configuration: c.Configuration, Updates: c.Updates, Bundles: c.Bundles,
		BundleTrials: c.BundleTrials, Backup: c.Backup, IdleTimeout: c.StreamIdleTimeout, Log: c.Log,
	})
	s.images = images.New(images.Config{Pods: c.Pods, Store: c.Images, Garbage: c.Garbage, IdleTimeout: c.StreamIdleTimeout})
}
