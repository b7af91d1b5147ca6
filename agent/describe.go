package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/api"
	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/agent/server"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/net/cni"
)

func (a *agent) serverConfig() server.Config {
	return server.Config{
		Version: a.version, KubeVersion: config.KubernetesVersion, NodeName: a.cfg.Node.Name, LogsDir: a.cfg.Kubelet.PodLogsDir,
		Disks: []string{a.cfg.Dirs.State, a.cfg.Dirs.Root, a.cfg.Kubelet.PodLogsDir},
		Pods:  a.pods, Local: a.desired, Runtime: a.rt.runtime, Images: a.rt.images,
		Decode: a.decodeLocal, Describe: a.describe, Details: a.details, NodeStats: a.nodeStats(),
		Checks: a.checks(), Kubelet: a.kubeletPaths(), Counted: a.figures.collectors(), Metrics: a.linkMetrics,
		StreamIdleTimeout: a.cfg.Kubelet.StreamingConnectionIdleTimeout.Duration, Log: a.log,
	}
}

// describe adds to the node's status what only the wiring knows.
func (a *agent) describe(ctx context.Context, s *api.Status) {
	s.Sources = a.describeSources()
	s.NotReady = a.notReady(ctx)
	s.Events = eventsOf(a.events.Recent(types.UID(a.cfg.Node.Name)))
	s.Addresses = a.node.now().IPs
	s.Imports = append(a.rt.goingImports(), a.rt.failedArchives()...)
	s.Network.Config = a.rt.network.Config()
	s.Store.Path = a.cfg.Dirs.State + "/islet.db"
	if aside, yes := a.store.Rebuilt(); yes {
		s.Store.Rebuilt = true
		s.Store.Message = fmt.Sprintf("the database was broken; it was set aside as %s and a new one made from the sources and from what runs", aside)
	}
	if s.Network.Config == cni.BuiltIn {
		for _, p := range a.rt.network.PodCIDRs() {
			s.Network.PodCIDRs = append(s.Network.PodCIDRs, p.String())
		}
	}
	if a.cluster != nil {
		s.Cluster = a.cluster.describe(s.Now)
		s.Problems = append(s.Problems, a.objectProblems()...)
	}
}

func (a *agent) describeSources() (out []api.Source) {
	counts := map[string]int{}
	for _, p := range a.desired.List() {
		counts[p.Source]++
	}
	origins := map[string]string{desired.File: a.cfg.Kubelet.StaticPodPath, desired.HTTP: a.cfg.Kubelet.StaticPodURL}
	if a.cluster != nil {
		origins[desired.API] = cmp.Or(a.link.Client().Host(), "the API server")
	}
	for _, name := range []string{desired.File, desired.HTTP, desired.Local, desired.API} {
		if name != desired.Local && origins[name] == "" {
			continue
		}
		src := api.Source{Name: name, Origin: origins[name], Spoken: a.spoken(name), Pods: counts[name]}
		for _, p := range a.desired.Problems() {
			if p.Source == name {
				src.Problems = append(src.Problems, api.Problem{Origin: p.Origin, Field: p.Field, Message: p.Message})
			}
		}
		out = append(out, src)
	}
	return out
}

func (c *containers) goingImports() (out []api.Import) {
	for _, p := range c.service.Going() {
		out = append(out, api.Import{Ref: p.Ref, Status: p.Status, Current: p.Current, Total: p.Total})
	}
	return out
}

func (c *containers) failedArchives() (out []api.Import) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range slices.Sorted(maps.Keys(c.failed)) {
		out = append(out, api.Import{Ref: file, Status: "failed", Error: c.failed[file].Error()})
	}
	return out
}
