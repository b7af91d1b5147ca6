package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/config"
)

// Cleanup ends every pod of an agent that does not run, and removes what it has
// on this host but for the state directory: mounts, cgroups, network, run
// directory. args are the agent's own. It returns the exit code.
func Cleanup(ctx context.Context, args []string, _, stderr io.Writer) int {
	cfg, _, err := config.Load(args)
	if err != nil {
		fmt.Fprintln(stderr, "islet cleanup:", err)
		return 2
	}
	a := &agent{cfg: cfg, log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	err = a.build(ctx)
	if err == nil {
		err = a.clean(ctx)
	}
	if err = errors.Join(err, a.close()); err != nil {
		fmt.Fprintln(stderr, "islet cleanup:", err)
		return 1
	}
	if err := os.RemoveAll(cfg.Dirs.Run); err != nil {
		fmt.Fprintln(stderr, "islet cleanup:", err)
		return 1
	}
	return 0
}

func (a *agent) clean(ctx context.Context) error {
	list, err := a.rt.runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list.Items {
		if _, err := a.rt.runtime.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, a.hooks.Release(ctx, types.UID(s.Metadata.GetUid())))
	}
	none := func(types.UID) bool { return false }
	errs = append(errs, a.volumes.Sweep(ctx, none), a.logs.Sweep(ctx, none), a.cgroups.Clean(), a.rt.network.Clean(ctx))
	return errors.Join(append(errs, unmountBelow(a.cfg.Dirs.Run))...)
}

// unmountBelow detaches what is still mounted in a directory.
func unmountBelow(dir string) error {
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != dir {
			unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // most are no mount points
		}
		return nil
	})
	return err
}
