package store

import (
	"context"
	"database/sql"
	"fmt"
)

// A VolumeKey identifies a mount point of a volume.
type VolumeKey struct {
	Volume string // ID of the volume, unique among all pods
	Pod    string // UID of the pod; empty if the volume is mounted for the whole node
	Path   string
}

// A Volume records a mount. It must not contain secrets, because it is not encrypted. Encryption is not possible, because the mount must be
// known even if the key is lost.
type Volume struct {
	VolumeKey
	Data []byte // data that the driver needs for the unmount
}

// PutVolume durably records a mount point before the mount.
func (s *Store) PutVolume(ctx context.Context, v Volume) error {
	err := s.commit(ctx, func(tx *transaction) error {
		return tx.execOn(textRows("volume", v.Volume), `
			INSERT INTO volumes (volume, pod, path, data) VALUES (?, ?, ?, ?)
			ON CONFLICT (volume, pod, path) DO UPDATE SET data = excluded.data WHERE data IS NOT excluded.data`,
			v.Volume, v.Pod, v.Path, v.Data)
	})
	if err != nil {
		return fmt.Errorf("record the mount of volume %s at %s: %w", v.Volume, v.Path, err)
	}
	return nil
}

// RemoveVolume removes the record of a mount point after the unmount.
func (s *Store) RemoveVolume(ctx context.Context, k VolumeKey) error {
	err := s.commit(ctx, func(tx *transaction) error {
		return tx.execOn(textRows("volume", k.Volume),
			"DELETE FROM volumes WHERE (volume, pod, path) = (?, ?, ?)", k.Volume, k.Pod, k.Path)
	})
	if err != nil {
		return fmt.Errorf("remove the record of volume %s at %s: %w", k.Volume, k.Path, err)
	}
	return nil
}

// Volumes returns all recorded mounts.
func (s *Store) Volumes(ctx context.Context) ([]Volume, error) {
	var list []Volume
	err := s.query(ctx, func() { list = nil }, func(rows *sql.Rows) error {
		var v Volume
		if err := rows.Scan(&v.Volume, &v.Pod, &v.Path, &v.Data); err != nil {
			return err
		}
		list = append(list, v)
		return nil
	}, "SELECT volume, pod, path, data FROM volumes")
	if err != nil {
		return nil, fmt.Errorf("read the mounted volumes: %w", err)
	}
	return list, nil
}
