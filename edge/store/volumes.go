package store

import (
	"context"
	"database/sql"
	"fmt"
)

// A VolumeKey names one place at which a volume is mounted, or is about to be.
type VolumeKey struct {
	Volume string // ID, of whichever pod
	Pod    string // UID; empty: it is mounted for the whole node
	Path   string
}

// A Volume is what is known of such a place. It is not sealed: what is mounted must be
// known although the key is lost. Secrets have no place in it.
type Volume struct {
	VolumeKey
	Data []byte // what the driver needs to undo it
}

// PutVolume durably notes a place before anything is mounted there.
func (s *Store) PutVolume(ctx context.Context, v Volume) error {
	err := s.commit(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO volumes (volume, pod, path, data) VALUES (?, ?, ?, ?)
			ON CONFLICT (volume, pod, path) DO UPDATE SET data = excluded.data WHERE data IS NOT excluded.data`, v.Volume, v.Pod, v.Path, v.Data)
		return err
	})
	if err != nil {
		return fmt.Errorf("note that volume %s is to be mounted at %s: %w", v.Volume, v.Path, err)
	}
	return nil
}

// RemoveVolume forgets a place where nothing is mounted any more.
func (s *Store) RemoveVolume(ctx context.Context, k VolumeKey) error {
	err := s.commit(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM volumes WHERE (volume, pod, path) = (?, ?, ?)", k.Volume, k.Pod, k.Path)
		return err
	})
	if err != nil {
		return fmt.Errorf("note that volume %s is not mounted at %s: %w", k.Volume, k.Path, err)
	}
	return nil
}

// Volumes gives all places.
func (s *Store) Volumes(ctx context.Context) ([]Volume, error) {
	var all []Volume
	err := s.query(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var v Volume
		if err := rows.Scan(&v.Volume, &v.Pod, &v.Path, &v.Data); err != nil {
			return err
		}
		all = append(all, v)
		return nil
	}, "SELECT volume, pod, path, data FROM volumes")
	if err != nil {
		return nil, fmt.Errorf("read which volumes are mounted: %w", err)
	}
	return all, nil
}
