//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/host/backups"
	"github.com/islet-edge/islet/agent/host/hostsettings"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/kubelet/ports"
	"github.com/islet-edge/islet/agent/resource/idlememory"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/inherit"
	"github.com/islet-edge/islet/internal/k3s"
)

// A runner runs an agent until ctx ends. It returns an error if the agent fails. The agent calls restart with the reason to make this
// process start another agent.
type runner func(
	ctx context.Context, cfg *config.Config, start *configure.Start, restart context.CancelCauseFunc, version string, log *slog.Logger,
) error

// start runs an agent in this process and returns the exit code. It reads the command line and the configuration, prepares the process,
// and runs the agent until SIGTERM or SIGINT. Pods continue to run after the agent has ended.
//
//	main --> start --configuration--> agent.Run
//	           ^                          |
//	           +--- restart: a new role --+
func start(args []string, version string, run runner, stdout, stderr io.Writer) int {
	stays := inherit.ResetAgent()
	began := configure.Begin(guard.TakeRole(), args)
	// A command such as --version limits no log, because the file of its output belongs to the caller.
	limit := func() { stdout, stderr = process.LimitLogs(stdout, stderr) }
	if began.Role.Kind == guard.Guard {
		limit()
		return began.Role.Supervise(slog.New(slog.NewTextHandler(stderr, nil)))
	}
	if err := backups.Resume(args); err != nil {
		limit()
		began.Role.ReportResult(err.Error())
		fmt.Fprintln(stderr, "islet:", err)
		return 1
	}
	cfg, notices, err := began.Load()
	completed, unfinished := false, error(nil)
	if err == nil {
		if completed, unfinished = k3s.Complete(k3s.Root(cfg.Dirs.State)); completed {
			began = configure.Begin(began.Role, args)
			cfg, notices, err = began.Load()
		}
	}
	if asked := (*config.InfoRequest)(nil); errors.As(err, &asked) {
		if asked.Version && filepath.Base(os.Args[0]) != "kubelet" { // kubeadm and other tools parse a single line
			fmt.Fprintf(stdout, "islet %s\n", version)
		}
		fmt.Fprint(stdout, asked.Text)
		return 0
	}
	limit()
	if err != nil {
		began.Role.ReportResult(err.Error())
		fmt.Fprintln(stderr, "islet:", err)
		return 2
	}
	log := process.Logger(cfg, stdout, stderr)
	process.LogConfig(context.Background(), cfg, log)
	if stays != nil {
		log.Warn("containers may inherit state from the program that started islet", "error", stays)
	}
	if unfinished != nil {
		log.Error("islet join was interrupted, and its files cannot be completed: run it again", "error", unfinished)
	} else if completed {
		log.Info("islet join was interrupted, and the agent has written the rest of its files")
	}
	for _, n := range notices {
		log.Info(n.String())
	}
	settings := hostsettings.Settings{Config: cfg, Log: log}
	if err := errors.Join(append(cfg.CheckHost(os.DirFS("/")), settings.EnterCgroups())...); err != nil {
		return began.HandleUnfit(err, log)
	}
	for _, concern := range append(cfg.VersionWarnings(), cfg.HostWarnings(os.DirFS("/"))...) {
		log.Warn(concern)
	}
	idlememory.Begin(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, restart := context.WithCancelCause(ctx)
	defer restart(nil)
	began.Role.Reap(ctx)
	process.ApplySettings(cfg, log)
	err = process.RunBounded(ctx, func() error { return run(ctx, cfg, began, restart, version, log) })
	next := (*configure.Restart)(nil)
	switch errors.As(context.Cause(ctx), &next); {
	case next != nil:
		log.Error("cannot restart the agent", "error", began.Role.Become(next.Role))
		return 1
	case errors.Is(err, process.ErrAbandoned):
		log.Warn("the agent ends; its pods continue to run, and the next start completes unfinished work", "error", err)
	case errors.As(err, new(ports.ListenError)):
		return began.HandleUnfit(err, log)
	case err != nil:
		began.Role.ReportResult(err.Error())
		log.Error("the agent ends", "error", err)
		return 1
	default:
		log.Info("the agent ends; its pods continue to run")
	}
	return 0
}
