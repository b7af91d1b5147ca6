package resource

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/engine/rotate"
	"github.com/islet-edge/islet/agent/host/home"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/resource/flash"
	"github.com/islet-edge/islet/agent/resource/garbage"
	"github.com/islet-edge/islet/agent/resource/oom"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// Meta keeps a value. *store.Store is one.
type Meta interface {
	garbage.Meta
	flash.Meta
}

// Config is what New needs. Of Garbage it takes what Settings does not fill in: Pods,
// Offline, Dead, Events, Now, Log.
type Config struct {
	*config.Config
	Containers *engine.Containers
	Store      Meta
	Garbage    garbage.Config
	OOM        func(ago time.Duration) // the machine had no memory left; it must not block
}

// Upkeep is all of it.
type Upkeep struct {
	*garbage.Garbage
	Flash *flash.Flash

	oom  *oom.Watch
	logs *rotate.Quota
	home home.Home
}

// New starts and reads nothing.
func New(c Config) *Upkeep {
	k, rt := &c.Kubelet, c.Containers
	g := garbage.Settings(c.Config, rt.Images)
	g.Pods, g.Offline, g.Dead, g.Events, g.Log, g.Now = c.Garbage.Pods, c.Garbage.Offline, c.Garbage.Dead, c.Garbage.Events, c.Garbage.Log, c.Garbage.Now
	g.Runtime, g.Known, g.Meta = rt.Runtime, rt.Known, c.Store
	wrote := func() uint64 { return 0 } // a runtime behind a socket does not say
	if i, ok := rt.Images.(interface{ Wrote() uint64 }); ok {
		wrote = i.Wrote
	}
	u := &Upkeep{
		Flash: flash.New(flash.Config{
			Dir: c.Dirs.State, Shims: engine.Programs(c.Dirs.State), Pods: cgroup.Path(rt.CgroupDriver, k.CgroupRoot), Images: wrote,
			Budget: uint64(c.FlashBudget), Meta: c.Store, Events: g.Events, Now: g.Now, Log: g.Log,
		}),
		home: home.Home{Config: c.Config, Log: g.Log},
		oom:  oom.New(oom.Config{File: filepath.Join(c.Dirs.Run, process.OOM), Killed: c.OOM, Events: g.Events, Log: g.Log}),
		logs: &rotate.Quota{Dir: k.PodLogsDir, Bytes: c.PodLogQuota, Workers: int(*k.ContainerLogMaxWorkers), Every: k.ContainerLogMonitorInterval.Duration, Log: g.Log},
	}
	g.Wait = u.Flash.Exceeded
	u.Garbage = garbage.New(g)
	return u
}

// Run does all of it until ctx ends.
func (u *Upkeep) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{u.Garbage.Run, u.Flash.Run, u.oom.Run, u.logs.Run, u.home.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// Collectors are the metrics of all of it.
func (u *Upkeep) Collectors() []prometheus.Collector {
	return slices.Concat(u.Garbage.Collectors(), u.Flash.Collectors(), u.oom.Collectors())
}
