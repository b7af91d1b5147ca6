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

// Meta stores values by key. *store.Store implements it.
type Meta interface {
	garbage.Meta
	flash.Meta
}

// Config configures New. New uses only these fields of Garbage: Pods, Offline, Dead, Events, Log, Now, Runtime and
// CheckPodsKnown. The values of the others come from garbage.Settings and from this package.
type Config struct {
	*config.Config
	Images  cri.Images
	Shims   string // directory of the shims' executable
	Cgroup  string // cgroup of all pods
	Kernel  string // path of the file that contains the position in the kernel's log
	Store   Meta
	Garbage garbage.Config
	OOM     func(ago time.Duration) // called after the machine ran out of memory; it must not block
}

// Upkeep runs the garbage collection, the check of the flash budget, and the watch for out-of-memory kills.
type Upkeep struct {
	*garbage.Garbage
	Flash *flash.Flash

	oom *oom.Watch
}

// New returns an Upkeep. It starts no goroutine and reads no file.
func New(c Config) *Upkeep {
	g := garbage.Settings(c.Config, c.Images)
	g.Pods, g.Offline, g.Dead = c.Garbage.Pods, c.Garbage.Offline, c.Garbage.Dead
	g.Events, g.Log, g.Now = c.Garbage.Events, c.Garbage.Log, c.Garbage.Now
	g.Runtime, g.CheckPodsKnown, g.Meta = c.Garbage.Runtime, c.Garbage.CheckPodsKnown, c.Store
	wrote := func() uint64 { return 0 } // a remote runtime does not report the number
	if i, ok := c.Images.(interface{ WrittenBytes() uint64 }); ok {
		wrote = i.WrittenBytes
	}
	u := &Upkeep{
		Flash: flash.New(flash.Config{
			Dir: c.Dirs.State, Shims: c.Shims, Pods: c.Cgroup, Images: wrote,
			Budget: uint64(c.FlashBudget), Meta: c.Store, Events: g.Events, Now: g.Now, Log: g.Log,
		}),
		oom: oom.New(oom.Config{File: c.Kernel, Killed: c.OOM, Events: g.Events, Log: g.Log}),
	}
	g.SaveWrites = u.Flash.BudgetExceeded
	u.Garbage = garbage.New(g)
	return u
}

// Run runs all parts until ctx ends.
func (u *Upkeep) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{u.Garbage.Run, u.Flash.Run, u.oom.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// Collectors returns the metrics of all parts.
func (u *Upkeep) Collectors() []prometheus.Collector {
	return slices.Concat(u.Garbage.Collectors(), u.Flash.Collectors(), u.oom.Collectors())
}
