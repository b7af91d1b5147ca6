package agent

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/host/volatile"
	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/socket"
)

// A disk contains the agent's directories and the store in them.
type disk struct {
	*base
	sockets  *socket.Sockets
	volatile *volatile.Layer // nil if the disk is writable
	store    *store.Store
}

// openDisk locks the directories for this process, and opens the store.
func openDisk(ctx context.Context, b *base) (*disk, error) {
	d := &disk{base: b}
	locks, err := process.Lock(d.cfg.Dirs.State, d.cfg.Dirs.Run)
	if err != nil {
		return nil, err
	}
	d.addCloser(locks.Close)
	d.sockets = socket.New(socket.Config{
		OnLost: func() error { return locks.Relock(d.cfg.Dirs.Run) },
		Dirs:   []string{d.cfg.Dirs.Run, d.cfg.Dirs.Root},
		Log:    d.log,
	})
	if d.volatile, err = volatile.MountLayers(volatile.Config{Dirs: writtenDirs(d.cfg), Run: d.cfg.Dirs.Run}); err != nil {
		return nil, err
	}
	if d.volatile.IsNew(d.cfg.Dirs.State) { // the lock file that is visible in the new layer is a different file
		if err = locks.Add(d.cfg.Dirs.State); err != nil {
			return nil, err
		}
	}
	if d.volatile != nil {
		d.log.Error(d.volatile.String())
	}
	if err := d.cfg.Dirs.Make(); err != nil {
		return nil, err
	}
	key := keyfile.Place{TPM: d.cfg.Edge.TPM.Device, Policies: d.cfg.Edge.TPM.Policies}
	if d.store, err = store.OpenSealed(ctx, filepath.Join(d.cfg.Dirs.State, process.Database), key, d.log); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	d.addCloser(d.store.Close)
	return d, nil
}

// writtenDirs returns the directories to which the agent writes, except the run directory.
func writtenDirs(cfg *config.Config) []volatile.Dir {
	return []volatile.Dir{
		{Path: cfg.Dirs.State, Separate: engine.OverlayDirs()}, {Path: cfg.Dirs.Root},
		{Path: cfg.Kubelet.PodLogsDir}, {Path: cfg.Dirs.LogLinks},
	}
}
