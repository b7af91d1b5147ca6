package describe

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/edge/backup"
)

// Backup writes an archive of the node's identity and state. Only one archive is made at a time.
func (a *Describer) Backup(ctx context.Context, w io.Writer, o node.BackupOptions) error {
	if !a.backups.TryLock() {
		return errors.New("another backup of this node is being made: try again when it has ended")
	}
	defer a.backups.Unlock()
	scratch := a.c.Dirs.State
	if a.c.Volatile != "" || a.c.Store.Health().Volatile != "" { // the disk takes no writes
		scratch = a.c.Dirs.Run
	}
	made, err := backup.Source{
		Config: a.c.Config, Version: o.Version, Now: time.Now, Copy: a.c.Store.CopyTo, Scratch: scratch,
		Bundles: o.Bundles, Include: o.Include,
		Recipient: func() string {
			recipient, err := a.Recipient()
			if err != nil {
				return ""
			}
			return recipient
		},
	}.Collect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(made.Write(ctx, w), made.Close())
}
