package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/mounts"
)

// recordFound adds rows for the volumes that the drivers find on the disk and that the ledger does not contain, because the database was
// lost. So these volumes are in use until their drivers have unmounted them.
func (k *Mounter) recordFound(ctx context.Context) {
	known := map[string]bool{}
	for key := range k.rows {
		known[key.Path] = true
	}
	for _, d := range k.cfg.Drivers {
		f, ok := d.(Finder)
		if !ok {
			continue
		}
		found, err := f.Find(func(path string) bool { return known[path] })
		if err != nil {
			k.cfg.Log.Error("cannot find all volumes that are not in the database", "driver", d.Plugin(), "error", err)
		}
		for _, m := range found {
			m.Volume.ID = volumeID(m.Pod, &m.Volume, d)
			key := store.VolumeKey{Volume: m.Volume.ID, Pod: string(m.Pod), Path: m.Path}
			k.cfg.Log.Warn("a volume may be mounted, and is not in the database", "volume", key.Volume, "path", key.Path)
			if err := k.putRow(ctx, key, record{Plugin: d.Plugin(), Volume: m.Volume, Found: true}); err != nil {
				k.cfg.Log.Error("cannot store a mounted volume: the next start tries again", "volume", key.Volume, "error", err)
			}
		}
	}
}

// unmountUnrecorded unmounts the disks of local volumes that are mounted for the node and that the ledger does not
// contain. Such mounts exist if the database was lost. If the device of such a mount is also mounted for a pod,
// both mounts stay.
func (k *Mounter) unmountUnrecorded() error {
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
		if below && strings.HasPrefix(path, "local-volume/mounts/") && !known[m.Mountpoint] && !used[device{m.Major, m.Minor}] {
			k.cfg.Log.Warn("unmounting a volume that is not in the database and that no pod uses", "path", m.Mountpoint)
			errs = append(errs, unmountDevice(m.Mountpoint))
		}
	}
	return errors.Join(errs...)
}

// checkUnused returns an error if the file system that is mounted at a path is also mounted for a pod, whatever the ledger contains. The
// message is the same as in a kubelet.
func (k *Mounter) checkUnused(name, path string) error {
	staged, err := mounts.FindTopmost(path)
	if err != nil || staged == nil {
		return err
	}
	pods := filepath.Join(k.root, "pods") + "/"
	refs, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		ref := m.Major == staged.Major && m.Minor == staged.Minor && m.Root == staged.Root && strings.HasPrefix(m.Mountpoint, pods)
		return !ref, ref
	})
	if err != nil || len(refs) == 0 {
		return err
	}
	return fmt.Errorf("GetDeviceMountRefs check failed for volume %q : the device mount path %q is still mounted by other references [%s]",
		name, path, refs[0].Mountpoint)
}
