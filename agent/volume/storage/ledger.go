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

// A Ledger durably knows what is mounted, or was about to be. *store.Store is one.
type Ledger interface {
	Volumes(ctx context.Context) ([]store.Volume, error)
	PutVolume(ctx context.Context, v store.Volume) error
	RemoveVolume(ctx context.Context, k store.VolumeKey) error
}

// A record is what a row of the ledger holds.
type record struct {
	Plugin string // the driver's
	Volume Volume
}

// load reads the ledger. A row that cannot be decoded keeps its place: what is mounted
// there is not touched, and the pod's directory stays, until somebody looks.
func load(ctx context.Context, l Ledger, log *slog.Logger) (map[store.VolumeKey]record, error) {
	rows, err := l.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[store.VolumeKey]record, len(rows))
	for _, row := range rows {
		var r record
		if err := json.Unmarshal(row.Data, &r); err != nil {
			log.Error("what is known of a mounted volume cannot be decoded", "volume", row.Volume, "path", row.Path, "error", err)
		}
		all[row.VolumeKey] = r
	}
	return all, nil
}

// note writes a row before a driver is asked. One that is there is not written again.
func (k *Keeper) note(ctx context.Context, key store.VolumeKey, r record) error {
	k.mu.Lock()
	_, there := k.rows[key]
	k.rows[key] = r
	k.mu.Unlock()
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the volume: %w", err)
	}
	if err := k.cfg.Ledger.PutVolume(ctx, store.Volume{VolumeKey: key, Data: data}); err != nil {
		if !there { // it may be written: to forget it later does no harm
			return err
		}
		return fmt.Errorf("bring the row up to date: %w", err)
	}
	return nil
}

// forget removes a row after the driver has undone it, also when nobody waits any more.
func (k *Keeper) forget(ctx context.Context, key store.VolumeKey) error {
	if err := k.cfg.Ledger.RemoveVolume(context.WithoutCancel(ctx), key); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.rows, key)
	return nil
}

// isReady reports whether a place was mounted by this run of the agent, and nobody else has
// unmounted it since: a container would write to what is below.
func (k *Keeper) isReady(key store.VolumeKey) bool {
	k.mu.Lock()
	point, ready := k.ready[key]
	k.mu.Unlock()
	if !ready || !point {
		return ready
	}
	there, err := mounts.On(key.Path)
	return err == nil && there != nil
}

// isUp reports whether a place is mounted, by this run of the agent or by one before.
func (k *Keeper) isUp(key store.VolumeKey) bool {
	if k.isReady(key) {
		return true
	}
	k.mu.Lock()
	_, noted := k.rows[key]
	k.mu.Unlock()
	there, err := mounts.On(key.Path)
	return noted && err == nil && there != nil
}

func (k *Keeper) setReady(key store.VolumeKey, yes bool) {
	there, err := mounts.On(key.Path)
	k.mu.Lock()
	defer k.mu.Unlock()
	if yes {
		k.ready[key] = err == nil && there != nil
	} else {
		delete(k.ready, key)
	}
}

// places gives the rows of a volume for a pod, or those for the whole node.
func (k *Keeper) places(id, pod string) map[store.VolumeKey]record {
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

// usedByOthers reports whether pods other than that one have a volume.
func (k *Keeper) usedByOthers(id, pod string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.rows {
		if key.Volume == id && key.Pod != "" && key.Pod != pod {
			return true
		}
	}
	return false
}

// of lists the volumes that a pod has, or is about to get.
func (k *Keeper) of(uid types.UID) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := map[string]bool{}
	for key := range k.rows {
		if key.Pod == string(uid) {
			ids[key.Volume] = true
		}
	}
	for u := range k.flight {
		if u.pod == uid {
			ids[u.id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
