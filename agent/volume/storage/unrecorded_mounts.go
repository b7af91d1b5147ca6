package storage

import (
	"errors"
	"fmt"
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

// checkUnused returns an error if the file system that is mounted at a path is also mounted for a pod, whatever the ledger contains. The
// message is that of a kubelet.
func (k *Mounter) checkUnused(path string) error {
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(k.root))
	if err != nil {
		return err
	}
	var staged *mountinfo.Info
	for _, m := range all {
		if m.Mountpoint == path {
			staged = m
		}
	}
	var refs []string
	for _, m := range all {
		if staged != nil && m.Major == staged.Major && m.Minor == staged.Minor && m.Root == staged.Root &&
			strings.HasPrefix(m.Mountpoint, filepath.Join(k.root, "pods")+"/") {
			refs = append(refs, m.Mountpoint)
		}
	}
	if len(refs) > 0 {
		return fmt.Errorf("the device mount path %q is still mounted by other references %v", path, refs)
	}
	return nil
}
