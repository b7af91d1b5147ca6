package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/host/hostsettings"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/pod/life/rebuild"
	"github.com/islet-edge/islet/agent/pod/machine"
	"github.com/islet-edge/islet/internal/config"
)

// A base contains the process-wide values that every part of the agent can use.
type base struct {
	cfg          *config.Config
	configStart  *configure.Start
	restartAgent context.CancelCauseFunc // ends the agent, so that it restarts with another program or configuration
	version      string
	log          *slog.Logger
	manager      process.ServiceManager
	laterParts   laterParts
	closers      []func() error // called in reverse order
}

func (b *base) addCloser(f func() error) { b.closers = append(b.closers, f) }

func (b *base) close() error {
	var errs []error
	for _, c := range slices.Backward(b.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// A runner works until ctx ends. Run returns when every goroutine that it started has ended.
type runner interface {
	Run(ctx context.Context) error
}

// Run runs the agent with the configuration cfg, which the Start has loaded. It returns nil when ctx has ended and all parts have
// stopped. The pods keep running. The parameter again is a function that ends ctx. A part that requires a restart calls this
// function with the reason.
func Run(
	ctx context.Context, cfg *config.Config, start *configure.Start, again context.CancelCauseFunc, version string, log *slog.Logger,
) (err error) {
	b := &base{cfg: cfg, configStart: start, restartAgent: again, version: version, log: log, manager: process.TakeServiceManager()}
	defer func() { err = errors.Join(err, b.close()) }()
	a, err := open(ctx, b)
	if err != nil {
		if ctx.Err() != nil { // the agent was stopped while it was starting
			return nil
		}
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	a.run(ctx, g)
	a.reporter.Started(ctx)
	if a.volatile != nil {
		a.events.Node(v1.EventTypeWarning, "FilesystemIsReadOnly", a.volatile.String()) // node-problem-detector's reason
	}
	if err := a.manager.Notify("READY=1"); err != nil {
		log.Warn("systemd cannot be told that islet is ready", "error", err)
	}
	return g.Wait()
}

// run starts the loop of every part. The first error ends all of them.
func (a *serverParts) run(ctx context.Context, g *errgroup.Group) {
	run := func(what string, r runner) {
		g.Go(func() error {
			if err := r.Run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	run("containers", a.rt)
	run("pod network", a.rt.Network)
	run("observer", a.observer)
	run("pods", a.pods)
	run("objects", a.objects)
	run("logs", a.rt.Rotator(a.observer))
	run("quota of logs", a.rt.LogQuota())
	run("host settings", hostsettings.Settings{Config: a.cfg, Log: a.log})
	run("memory", a.settler)
	run("upkeep", a.upkeep)
	run("sockets", a.sockets)
	run("plugins", a.plugins)
	run("claims", a.claims)
	run("workers", a.rt.ObserveLoop(a.observeAndLoadProbes, a.prepareWorkers, a.workers))
	run("probes", a.probes)
	run("shutdown", a.shutdown)
	run("eviction", a.eviction)
	run("database", rebuild.New(rebuild.Config{Runtime: a.rt.Runtime, Desired: a.desired, Store: a.store, Log: a.log}))
	run("devices", a.devices)
	run("pods API", a.podsServer)
	run("configuration", a.keeper)
	run("updates", a.updater)
	run("events", a.events)
	a.bundles.Start(ctx, g.Go)
	for _, s := range a.manifests {
		run("source of pods", s)
	}
	run("link", a.link)
	run("uplink", a.uplink)
	run("facts", &machine.Follower{Machine: a.machine, Moved: a.uplink.Moved(), Came: a.networkChanged,
		Changed: a.laterParts.pokePods, Pod: a.desiredPod, UpdateDNS: a.rt.UpdateDNS, Log: a.log})
	if a.cluster != nil {
		run("cluster", a.cluster)
		run("source of configurations", a.follower)
	}
	if a.criSocket != nil {
		run("CRI socket", a.criSocket)
	}
	if a.page != nil {
		run("status page", a.page)
	}
	g.Go(func() error { return a.server.Run(ctx, a.socket) })
	g.Go(func() error { return a.ports.Run(ctx, a.server) })
}
