package describe

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/brake"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/object"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/setuprecord"
	"github.com/islet-edge/islet/net/cni"
)

// Config configures a Describer.
type Config struct {
	*config.Config
	Desired     *desired.Desired
	Store       *store.Store
	Events      *outbox.Events
	Runtime     Runtime
	Network     Network
	Machine     Machine
	Endpoint    string          // of the runtime; empty if the runtime is part of this process
	Leftovers   string          // pods and images that are still in the previous runtime, and how to remove them; may be empty
	Database    string          // path of the database
	Addresses   func() []string // returns the addresses of the node
	NotReady    func(context.Context) []string
	HasReported func(source string) bool
	Local       interface{ Problems() []local.Problem }
	Input       func(types.UID) plan.Input // returns the input of the last round of a pod's worker
	Cluster     *Cluster                   // nil if the node has no control plane
	Flash       func(context.Context) *api.Flash
	SlowVolumes func(types.UID) []string // describes the volumes of a pod whose setup takes long
	Volatile    string                   // the problem that directories are in memory because the disk is read-only; may be empty

	Configuration func() []string // returns problems with a received configuration
	Received      func() string   // returns the received configuration that is in use, or ""
}

// A Runtime runs the containers. *engine.Containers implements it.
type Runtime interface {
	// ImportsInProgress returns the running imports of image archives. FailedArchives returns the archives whose last
	// import failed.
	ImportsInProgress() []api.Import
	FailedArchives() []api.Import
	// Problems describes parts of the runtime that do not work.
	Problems() []string
}

// A Network is the pod network. *cni.Network implements it.
type Network interface {
	Config() string
	Repairs() cni.Repairs
	PodCIDRs() []netip.Prefix
}

// A Cluster is the connection to the control plane.
type Cluster struct {
	Link    *link.Link
	Outbox  *outbox.Outbox
	Objects interface{ Problems() []object.Problem }
	Brake   *brake.Brake
	Twin    *twin.Twin
}

// A Describer collects status information from all parts of the node.
type Describer struct {
	c       Config
	backups sync.Mutex // held while an archive is made
}

// New returns a Describer.
func New(c Config) *Describer { return &Describer{c: c} }

// Status completes a status with the information that the Describer collects.
func (a *Describer) Status(ctx context.Context, s *api.Status) {
	a.addHookReasons(s.Troubles)
	s.Sources, s.Files, s.Received = a.describeSources(), a.c.Files(), a.c.Received()
	s.NotReady = a.c.NotReady(ctx)
	s.Events = eventsOf(a.c.Events.RecentNode())
	s.Addresses = a.c.Addresses()
	s.Imports = append(a.c.Runtime.ImportsInProgress(), a.c.Runtime.FailedArchives()...)
	s.Network.Config = a.c.Network.Config()
	s.Problems = append(s.Problems, a.c.Runtime.Problems()...)
	s.Problems = append(s.Problems, a.c.Configuration()...)
	s.Problems = append(s.Problems, setuprecord.Problems(a.c.Dirs.State)...)
	s.Runtime.Endpoint, s.Runtime.Left = a.c.Endpoint, a.c.Leftovers
	if s.Flash = a.c.Flash(ctx); s.Flash.Exceeded {
		s.Problems = append(s.Problems,
			fmt.Sprintf("more was written to the disk today than flashBudget allows (%d MiB of %d MiB); work "+
				"that can wait is postponed until the day is over",
				s.Flash.Today.Stack>>20, s.Flash.Budget>>20))
	}
	s.Store.Path = a.c.Database
	h := a.c.Store.Health()
	if h.Aside != "" {
		s.Store.Rebuilt = true
		s.Store.Message = fmt.Sprintf("the database was damaged: it was moved to %s and rebuilt from the %d "+
			"rows that could be read, the sources and the running pods",
			h.Aside, h.Salvaged)
	}
	if h.Volatile != "" {
		s.Store.Message = h.Volatile
		s.Problems = append(s.Problems, h.Volatile)
	}
	if a.c.Volatile != "" {
		s.Problems = append(s.Problems, a.c.Volatile)
	}
	if r := a.c.Network.Repairs(); r.Count > 0 {
		s.Network.Repairs = &api.Repairs{Count: r.Count, Last: r.Last, What: r.LastItem}
	}
	if s.Network.Config == cni.BuiltIn {
		for _, p := range a.c.Network.PodCIDRs() {
			s.Network.PodCIDRs = append(s.Network.PodCIDRs, p.String())
		}
	}
	if a.c.Cluster != nil {
		s.Cluster = a.clusterStatus(s.Now)
		a.addHeldPods(s)
		s.Problems = append(s.Problems, a.twinProblem()...)
		s.Problems = append(s.Problems, a.objectProblems()...)
	}
}

func (a *Describer) describeSources() (out []api.Source) {
	counts := map[string]int{}
	for _, p := range a.c.Desired.List() {
		counts[p.Source]++
	}
	origins := map[string]string{desired.File: a.c.Kubelet.StaticPodPath, desired.HTTP: a.c.Kubelet.StaticPodURL}
	if a.c.Cluster != nil {
		origins[desired.API] = cmp.Or(a.c.Cluster.Link.Client().Host(), "the API server")
	}
	for _, name := range []string{desired.File, desired.HTTP, desired.Local, desired.Bundle, desired.API} {
		unused := origins[name] == ""
		switch name {
		case desired.Local:
			unused = false
		case desired.Bundle:
			unused = counts[name] == 0 && a.c.HasReported(name)
		}
		if unused {
			continue
		}
		src := api.Source{Name: name, Origin: origins[name], Spoken: a.c.HasReported(name), Pods: counts[name]}
		for _, p := range a.c.Desired.Problems() {
			if p.Source == name {
				src.Problems = append(src.Problems, api.Problem{Origin: p.Origin, Field: p.Field, Message: p.Message})
			}
		}
		for _, p := range a.c.Local.Problems() {
			if p.Source == name {
				src.Problems = append(src.Problems, api.Problem{Origin: p.Origin, Field: p.Field, Message: p.Message})
			}
		}
		out = append(out, src)
	}
	return out
}
