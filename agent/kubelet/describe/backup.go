package describe

import (
	"context"
	"io"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/edge/backup"
)

// Backup writes an archive of the node's identity and state. Only one archive is made at a time.
func (a *Describer) Backup(ctx context.Context, w io.Writer, o node.BackupOptions) error {
	a.backups.Lock()
	defer a.backups.Unlock()
	scratch := a.c.Dirs.State
	if a.c.Volatile != "" || a.c.Store.Health().Volatile != "" { // the disk takes no writes
		scratch = a.c.Dirs.Run
	}
	return backup.Source{
		Config: a.c.Config, Version: o.Version, Now: time.Now, Copy: a.c.Store.CopyTo, Scratch: scratch,
		Bundles: o.Bundles, Include: o.Include,
		Recipient: func() string {
			recipient, err := a.Recipient()
			if err != nil {
				return ""
			}
			return recipient
		},
	}.Write(ctx, w)
}
