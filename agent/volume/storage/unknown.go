package storage

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// unmountUnknown unmounts what the built-in drivers mounted for the whole node and the
// ledger does not know, since the database was lost: nobody would unmount it ever. What is
// mounted for a pod too is left until that is gone.
func (k *Keeper) unmountUnknown() error {
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(k.root))
	if err != nil {
		return err
	}
	type device struct{ major, minor int }
	used := map[device]bool{}
	for _, m := range all {
		if strings.HasPrefix(m.Mountpoint, filepath.Join(k.root, "pods")+"/") {
			used[device{m.Major, m.Minor}] = true
		}
	}
	known := map[string]bool{}
	k.mu.Lock()
	for key := range k.rows {
		known[key.Path] = true
	}
	k.mu.Unlock()
	var errs []error
	for _, m := range all {
		path, below := strings.CutPrefix(m.Mountpoint, filepath.Join(k.root, "plugins", "kubernetes.io")+"/")
		ours := below && (strings.HasPrefix(path, "local-volume/mounts/") || strings.HasPrefix(path, "iscsi/iface-"))
		if ours && !known[m.Mountpoint] && !used[device{m.Major, m.Minor}] {
			k.cfg.Log.Warn("a volume is mounted that the database does not know of and no pod uses: unmounting it", "path", m.Mountpoint)
			errs = append(errs, unmount(m.Mountpoint))
		}
	}
	return errors.Join(errs...)
}
