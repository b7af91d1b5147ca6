package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/host/shutdown"
	"github.com/islet-edge/islet/agent/host/volatile"
	"github.com/islet-edge/islet/internal/hostcommand"
)

// Cleanup removes every pod of an agent that is not running, with its mounts, cgroups and network. It also removes
// the run directory, and the drop-in that makes logind wait for the pods. It keeps the state directory. The arguments
// belong to the agent. Cleanup returns the exit code.
func Cleanup(ctx context.Context, args []string, _, stderr io.Writer) int {
	return hostcommand.Report(stderr, "cleanup", cleanUp(ctx, args, stderr))
}

func cleanUp(ctx context.Context, args []string, stderr io.Writer) error {
	start := configure.BeginCleanup(args)
	cfg, _, err := start.Load()
	if err != nil {
		return hostcommand.Usage(err)
	}
	if used, err := process.DirsUsed(cfg.Dirs); err != nil {
		return err
	} else if !used {
		fmt.Fprintf(stderr, "islet: cleanup: no agent has run with %s and %s: nothing to clean up\n", cfg.Dirs.State, cfg.Dirs.Run)
		return nil
	}
	b := &base{cfg: cfg, configStart: start, log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if err = errors.Join(b.removePods(ctx), b.close()); err == nil {
		err = volatile.UnmountLayers(writtenDirs(cfg)...)
	}
	if err == nil {
		err = errors.Join(process.RemoveRun(cfg.Dirs.Run, filepath.Base(cfg.Edge.CRISocket)), shutdown.RemoveDropIn(shutdown.DropIns))
	}
	return err
}

// removePods removes every pod of this node from the runtime, together with its files, mounts, cgroups and network. It opens the
// features and the parts that they need, but no worker and no server. It does not connect to any other host.
func (b *base) removePods(ctx context.Context) error {
	f, err := openFeatures(ctx, b)
	if err != nil {
		return err
	}
	if err := f.rt.ObserveOrLoad(ctx, f.observeRuntime, f.pods.Load); err != nil {
		return err
	}
	if err := f.rt.CheckPodsKnown(); err != nil { // the runtime has not answered
		return err
	}
	list, err := f.rt.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range f.rt.OwnSandboxes(list.Items) {
		if _, err := f.rt.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, f.hooks.Release(ctx, types.UID(s.Metadata.GetUid())))
	}
	f.logs.Flush()
	none := func(types.UID) bool { return false }
	return errors.Join(append(errs, f.sweepExcept(ctx, none), f.cgroups.Clean(), f.rt.Network.Clean(ctx))...)
}
