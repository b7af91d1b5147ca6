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
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/host/shutdown"
	"github.com/islet-edge/islet/agent/host/volatile"
)

// Cleanup ends every pod of an agent that does not run, and removes what it has
// on this host but for the state directory: mounts, cgroups, network, run
// directory, and what lets logind wait for the pods. args are the agent's own. It returns the exit code.
func Cleanup(ctx context.Context, args []string, _, stderr io.Writer) int {
	start := configure.Begin(guard.Role{}, args)
	cfg, _, err := start.Load()
	if err != nil {
		fmt.Fprintln(stderr, "islet cleanup:", err)
		return 2
	}
	switch something, err := process.Used(cfg.Dirs); {
	case err != nil:
		fmt.Fprintln(stderr, "islet cleanup:", err)
		return 1
	case !something:
		fmt.Fprintf(stderr, "islet cleanup: no agent has run with %s and %s: nothing to clean up\n", cfg.Dirs.State, cfg.Dirs.Run)
		return 0
	}
	a := &agent{cfg: cfg, started: start, log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if err = a.build(ctx); err == nil {
		err = a.rt.Known()
	}
	if err == nil {
		err = a.clean(ctx)
	}
	if err = errors.Join(err, a.close()); err == nil {
		err = volatile.Uncover(a.writes()...)
	}
	if err == nil {
		err = errors.Join(process.RemoveRun(cfg.Dirs.Run, filepath.Base(cfg.Edge.CRISocket)), shutdown.Forget(shutdown.DropIns))
	}
	if err != nil {
		fmt.Fprintln(stderr, "islet cleanup:", err)
		return 1
	}
	return 0
}

func (a *agent) clean(ctx context.Context) error {
	list, err := a.rt.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range a.rt.Own(list.Items) {
		if _, err := a.rt.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, a.hooks.Release(ctx, types.UID(s.Metadata.GetUid())))
	}
	none := func(types.UID) bool { return false }
	return errors.Join(append(errs, a.volumes.Sweep(ctx, none), a.logs.Sweep(ctx, none), a.links.Sweep(ctx, none), a.cgroups.Clean(), a.rt.Network.Clean(ctx))...)
}

// spoke is called when a source has said what it wants: what runs and no source wants may end
// now, and what ended pods left on disk may be removed.
func (a *agent) spoke(ctx context.Context) {
	a.workers.PokeAll()
	a.sweep(ctx)
}

// sweep removes what is left on disk of pods that are neither wanted nor there:
// directories, mounts, logs. It is called once all sources have spoken.
func (a *agent) sweep(ctx context.Context) {
	if !a.pods.Spoken("") || a.rt.Known() != nil { // later, then
		return
	}
	keep := func(uid types.UID) bool {
		seen := a.observer.Pod(uid)
		_, wanted := a.desired.Get(uid)
		return wanted || len(seen.Sandboxes)+len(seen.Containers) > 0
	}
	if err := errors.Join(a.volumes.Sweep(ctx, keep), a.logs.Sweep(ctx, keep), a.links.Sweep(ctx, keep)); err != nil {
		a.log.Warn("not everything of pods that are gone could be removed", "error", err)
	}
}
