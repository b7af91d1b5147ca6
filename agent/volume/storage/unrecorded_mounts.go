package storage

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// unmountOrphans unmounts the mounts that the built-in drivers have made for the node and that the ledger does not
// contain. Such mounts exist if the database was lost. If the device of such a mount is also mounted for a pod,
// both mounts stay.
func (k *Mounter) unmountOrphans() error {
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
			k.cfg.Log.Warn("unmounting a volume that is not in the database and that no pod uses", "path", m.Mountpoint)
			errs = append(errs, unmountDevice(m.Mountpoint))
		}
	}
	return errors.Join(errs...)
}
