package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/mounts"
)

// A Ledger persistently records which volumes are mounted or may be mounted. *store.Store implements it.
type Ledger interface {
	Volumes(ctx context.Context) ([]store.Volume, error)
	PutVolume(ctx context.Context, v store.Volume) error
	RemoveVolume(ctx context.Context, k store.VolumeKey) error
}

// A record is the content of one row of the ledger.
type record struct {
	Plugin string // name of the driver's plugin
	Volume Volume
	// GroupPending means that the group of all files must be changed for the pod, and that no change has ended successfully since then.
	GroupPending bool `json:",omitempty"`
	// Size is the number of bytes to which this node has expanded the volume. The claim's status contains the size of the node that
	// expanded the volume first. Size is 0 if it is unknown, as in the rows of earlier versions.
	Size int64 `json:",omitempty"`
	// Found means that a Finder has found the volume. The record contains only the data that an unmount needs.
	Found bool `json:",omitempty"`
}

// loadLedger reads the ledger. If it cannot decode a row, it returns an empty record for this row. The row, its
// mount and the pod's directory stay until an administrator removes them.
func loadLedger(ctx context.Context, l Ledger, log *slog.Logger) (map[store.VolumeKey]record, error) {
	rows, err := l.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[store.VolumeKey]record, len(rows))
	for _, row := range rows {
		var r record
		if err := json.Unmarshal(row.Data, &r); err != nil {
			log.Error("cannot decode the record of a mounted volume", "volume", row.Volume, "path", row.Path, "error", err)
			r = record{}
		}
		key := row.VolumeKey
		if s := &r.Volume.Source; s.ISCSI != nil || s.Local != nil {
			key.Volume = volumeID(types.UID(key.Pod), &r.Volume, nil)
		}
		if key != row.VolumeKey { // earlier versions stored each spelling of a disk, and each name of a directory, as a volume of its own
			r.Volume.ID = key.Volume
			if err := renameRow(ctx, l, row.VolumeKey, key, r); err != nil {
				log.Error("cannot store a mounted volume by its new ID: the next start tries again", "volume", key.Volume, "error", err)
			}
		}
		all[key] = r
	}
	return all, nil
}

// renameRow replaces a row with one with another key. If it returns an error, the ledger contains the old row, or both.
func renameRow(ctx context.Context, l Ledger, from, to store.VolumeKey, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := l.PutVolume(ctx, store.Volume{VolumeKey: to, Data: data}); err != nil {
		return err
	}
	return l.RemoveVolume(ctx, from)
}

// putRow stores a row. It must be called before the driver is called. Two volumes cannot be staged at the same path.
func (k *Mounter) putRow(ctx context.Context, key store.VolumeKey, r record) error {
	k.mu.Lock()
	for other := range k.rows {
		if key.Pod == "" && other.Pod == "" && other.Path == key.Path && other.Volume != key.Volume {
			k.mu.Unlock()
			return fmt.Errorf("volume %s is still mounted at %s", other.Volume, key.Path)
		}
	}
	_, there := k.rows[key]
	k.rows[key] = r
	k.mu.Unlock()
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the volume: %w", err)
	}
	if err := k.cfg.Ledger.PutVolume(ctx, store.Volume{VolumeKey: key, Data: data}); err != nil {
		if !there { // a row without a mount is harmless and is removed later
			return err
		}
		return fmt.Errorf("update the row: %w", err)
	}
	return nil
}

// updateRow changes a row, if there is one, and stores it. The caller holds the lock of the volume or of the pod's use, so that nothing
// deletes the row.
func (k *Mounter) updateRow(ctx context.Context, key store.VolumeKey, change func(*record)) error {
	k.updates.Lock()
	defer k.updates.Unlock()
	k.mu.Lock()
	r, ok := k.rows[key]
	k.mu.Unlock()
	if !ok {
		return nil
	}
	change(&r)
	return k.putRow(ctx, key, r)
}

// deleteRow removes a row, even if ctx has ended. It must be called after the driver has unmounted the volume.
func (k *Mounter) deleteRow(ctx context.Context, key store.VolumeKey) error {
	if err := k.cfg.Ledger.RemoveVolume(context.WithoutCancel(ctx), key); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.rows, key)
	return nil
}

// isReady reports whether this process has mounted a volume at the path and the mount still exists. If the mount were
// missing, a container would write to the directory below it.
func (k *Mounter) isReady(key store.VolumeKey) bool {
	k.mu.Lock()
	point, ready := k.ready[key]
	k.mu.Unlock()
	if !ready || !point {
		return ready
	}
	there, err := mounts.FindTopmost(key.Path)
	return err == nil && there != nil
}

// isUp reports whether this process or a previous one has mounted a volume at the path, and the mount
// still exists.
func (k *Mounter) isUp(key store.VolumeKey) bool {
	if k.isReady(key) {
		return true
	}
	k.mu.Lock()
	_, noted := k.rows[key]
	k.mu.Unlock()
	there, err := mounts.FindTopmost(key.Path)
	return noted && err == nil && there != nil
}

func (k *Mounter) setReady(key store.VolumeKey, yes bool) {
	there, err := mounts.FindTopmost(key.Path)
	k.mu.Lock()
	defer k.mu.Unlock()
	if yes {
		k.ready[key] = err == nil && there != nil
	} else {
		delete(k.ready, key)
	}
}

// rowsFor returns the rows of a volume for a pod. If pod is "", it returns the rows of the volume for the node.
func (k *Mounter) rowsFor(id, pod string) map[store.VolumeKey]record {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[store.VolumeKey]record{}
	for key, r := range k.rows {
		if key.Volume == id && key.Pod == pod {
			all[key] = r
		}
	}
	return all
}

// isRecorded reports whether the ledger contains a volume.
func (k *Mounter) isRecorded(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.rows {
		if key.Volume == id {
			return true
		}
	}
	return false
}

// usedByOthers reports whether a pod other than the given one uses a volume.
func (k *Mounter) usedByOthers(id, pod string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.rows {
		if key.Volume == id && key.Pod != "" && key.Pod != pod {
			return true
		}
	}
	return false
}

// podVolumes returns the IDs of the volumes that a pod uses. It includes volumes that are being mounted.
func (k *Mounter) podVolumes(uid types.UID) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := map[string]bool{}
	for key := range k.rows {
		if key.Pod == string(uid) {
			ids[key.Volume] = true
		}
	}
	for u := range k.inFlight {
		if u.pod == uid {
			ids[u.id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
