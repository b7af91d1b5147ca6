package hostsettings

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// Settings applies the configuration to the host.
type Settings struct {
	Config *config.Config
	Log    *slog.Logger

	Proc string // empty: /proc
}

// EnterCgroups moves this process and the system's processes to their configured cgroups. Call it before the agent's cgroup
// is read.
func (s Settings) EnterCgroups() error { return s.system().Enter() }

// Run sets the kernel parameters. It then keeps the hint chain, and repeats EnterCgroups, once a minute until ctx ends.
func (s Settings) Run(ctx context.Context) error {
	s.setKernelParameters()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.system().Run(ctx) })
	if *s.Config.Kubelet.MakeIPTablesUtilChains {
		g.Go(func() error { keepHints(ctx, s.Log); return nil })
	}
	return g.Wait()
}

func (s Settings) system() cgroup.System {
	k := &s.Config.Kubelet
	return cgroup.System{Agent: k.KubeletCgroups, Others: k.SystemCgroups, Root: k.CgroupRoot, Log: s.Log}
}
