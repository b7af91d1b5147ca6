package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PutStatus stores the status of a pod within a few seconds, or at Close. If a newer status arrives before that, only the newer one is
// stored. PutStatus does not block.
func (s *Store) PutStatus(uid types.UID, status *v1.PodStatus) error {
	data, err := status.Marshal()
	if err != nil {
		return fmt.Errorf("encode the status of pod %s: %w", uid, err)
	}
	s.mu.Lock()
	s.statuses[uid] = data
	s.mu.Unlock()
	select {
	case s.dirty <- struct{}{}:
	default:
	}
	return nil
}

// StoreStatuses durably stores the statuses of pods.
func (s *Store) StoreStatuses(ctx context.Context, list map[types.UID]*v1.PodStatus) error {
	raw := make(map[types.UID][]byte, len(list))
	for uid, status := range list {
		data, err := status.Marshal()
		if err != nil {
			return fmt.Errorf("encode the status of pod %s: %w", uid, err)
		}
		raw[uid] = data
	}
	return s.commit(ctx, func(tx *transaction) error {
		s.mu.Lock()
		for uid := range raw { // so that flush writes no older status afterwards
			delete(s.statuses, uid)
		}
		s.mu.Unlock()
		return writeStatuses(tx, raw)
	})
}

// Statuses returns the newest status of each pod, including statuses that are not written yet.
func (s *Store) Statuses(ctx context.Context) (map[types.UID]*v1.PodStatus, error) {
	raw := map[types.UID][]byte{}
	err := s.query(ctx, func() { clear(raw) }, func(rows *sql.Rows) error {
		var uid string
		var data []byte
		if err := rows.Scan(&uid, &data); err != nil {
			return err
		}
		raw[types.UID(uid)] = data
		return nil
	}, "SELECT uid, status FROM statuses")
	if err != nil {
		return nil, fmt.Errorf("read the statuses of pods: %w", err)
	}
	s.mu.Lock()
	maps.Copy(raw, s.statuses)
	s.mu.Unlock()
	list := make(map[types.UID]*v1.PodStatus, len(raw))
	for uid, data := range raw {
		status := &v1.PodStatus{}
		if err := status.Unmarshal(data); err != nil {
			s.log.Error("a stored status cannot be decoded and is omitted", "uid", uid, "error", err)
			continue
		}
		list[uid] = status
	}
	return list, nil
}

// dropStatuses drops the pending statuses of removed pods.
func (s *Store) dropStatuses(uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range uids {
		delete(s.statuses, uid)
	}
}

// flush writes the pending statuses, without fsync. It returns false after an error. A power cut may lose the statuses of the last seconds,
// but does not damage the file.
func (s *Store) flush() bool {
	s.mu.Lock()
	pending := maps.Clone(s.statuses)
	s.mu.Unlock()
	if len(pending) == 0 {
		return true
	}
	store := write{change: func(tx *transaction) error { return writeStatuses(tx, pending) }}
	err := s.transact(coalescedMode, store)
	if err != nil && s.repairDatabase(err) {
		err = s.transact(coalescedMode, store)
	}
	if err != nil {
		if !s.failing { // logged only once, because the log must not grow on a full disk
			s.log.Warn("the statuses of pods could not be stored and are retried", "error", s.explainError(err))
		}
		s.failing = true
		return false
	}
	s.failing = false
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, data := range pending {
		if now, ok := s.statuses[uid]; ok && string(now) == string(data) {
			delete(s.statuses, uid)
		}
	}
	return true
}

func writeStatuses(tx *transaction, list map[types.UID][]byte) error {
	for uid, data := range list {
		// Skip the status of a pod that was removed in the meantime.
		if err := tx.exec(`
			INSERT INTO statuses (uid, status) SELECT ?, ? WHERE EXISTS (SELECT 1 FROM pods WHERE uid = ?)
			ON CONFLICT (uid) DO UPDATE SET status = excluded.status WHERE status IS NOT excluded.status`,
			string(uid), data, string(uid)); err != nil {
			return err
		}
	}
	return nil
}
