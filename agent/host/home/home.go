package home

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// A Home configures the host.
type Home struct {
	Config *config.Config
	Log    *slog.Logger
}

// EnterCgroups moves this process and the system's processes to their configured cgroups. Call it before the agent's cgroup
// is read.
func (h Home) EnterCgroups() error { return h.system().Enter() }

// Run creates the hint chain, and repeats EnterCgroups once a minute until ctx ends.
func (h Home) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.system().Run(ctx) })
	if *h.Config.Kubelet.MakeIPTablesUtilChains {
		g.Go(func() error { createHint(ctx, h.Log); return nil })
	}
	return g.Wait()
}

func (h Home) system() cgroup.System {
	k := &h.Config.Kubelet
	return cgroup.System{Agent: k.KubeletCgroups, Others: k.SystemCgroups, Root: k.CgroupRoot, Log: h.Log}
}
