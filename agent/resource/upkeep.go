package resource

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/agent/resource/flash"
	"github.com/islet-edge/islet/agent/resource/garbage"
	"github.com/islet-edge/islet/agent/resource/oom"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/runtime/cri"
)

// Meta keeps a value. *store.Store is one.
type Meta interface {
	garbage.Meta
	flash.Meta
}

// Config is what New needs. Of Garbage it takes what Settings does not fill in: Pods,
// Offline, Dead, Events, Now, Log, and of the runtime Runtime and Known.
type Config struct {
	*config.Config
	Images  cri.Images
	Shims   string // directory of the shims' program
	Cgroup  string // of all pods
	Kernel  string // file of what the kernel logs
	Store   Meta
	Garbage garbage.Config
	OOM     func(ago time.Duration) // the machine had no memory left; it must not block
}

// Upkeep is all of it.
type Upkeep struct {
	*garbage.Garbage
	Flash *flash.Flash

	oom *oom.Watch
}

// New starts and reads nothing.
func New(c Config) *Upkeep {
	g := garbage.Settings(c.Config, c.Images)
	g.Pods, g.Offline, g.Dead, g.Events, g.Log, g.Now = c.Garbage.Pods, c.Garbage.Offline, c.Garbage.Dead, c.Garbage.Events, c.Garbage.Log, c.Garbage.Now
	g.Runtime, g.Known, g.Meta = c.Garbage.Runtime, c.Garbage.Known, c.Store
	wrote := func() uint64 { return 0 } // a runtime behind a socket does not say
	if i, ok := c.Images.(interface{ Wrote() uint64 }); ok {
		wrote = i.Wrote
	}
	u := &Upkeep{
		Flash: flash.New(flash.Config{
			Dir: c.Dirs.State, Shims: c.Shims, Pods: c.Cgroup, Images: wrote,
			Budget: uint64(c.FlashBudget), Meta: c.Store, Events: g.Events, Now: g.Now, Log: g.Log,
		}),
		oom: oom.New(oom.Config{File: c.Kernel, Killed: c.OOM, Events: g.Events, Log: g.Log}),
	}
	g.Wait = u.Flash.Exceeded
	u.Garbage = garbage.New(g)
	return u
}

// Run does all of it until ctx ends.
func (u *Upkeep) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{u.Garbage.Run, u.Flash.Run, u.oom.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// Collectors are the metrics of all of it.
func (u *Upkeep) Collectors() []prometheus.Collector {
	return slices.Concat(u.Garbage.Collectors(), u.Flash.Collectors(), u.oom.Collectors())
}
