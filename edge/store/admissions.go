package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// An Admission records that a pod was rejected, and the reason why it may not run on this node. It is stored until the pod is removed or
// RemoveRejection is called.
type Admission struct {
	Reason    string // as in PodStatus.Reason, for example OutOfcpu
	Message   string
	Grace     time.Duration // maximum grace period of the pod's containers; 0 means the grace period of the spec
	Disrupted bool          // the pod has the condition DisruptionTarget
}

// Reject durably stores the rejection of a pod.
func (s *Store) Reject(ctx context.Context, uid types.UID, a Admission) error {
	err := s.commit(ctx, func(tx *transaction) error {
		set := textRows("uid", string(uid))
		err := tx.execOn(set, `
			INSERT INTO admissions (uid, reason, message) VALUES (?, ?, ?)
			ON CONFLICT (uid) DO UPDATE SET reason = excluded.reason, message = excluded.message
			WHERE (reason, message) IS NOT (excluded.reason, excluded.message)`, string(uid), a.Reason, a.Message)
		if err != nil {
			return err
		}
		if a.Grace == 0 && !a.Disrupted {
			return tx.execOn(set, "DELETE FROM evictions WHERE uid = ?", string(uid))
		}
		return tx.execOn(set, `
			INSERT INTO evictions (uid, grace, disrupted) VALUES (?, ?, ?)
			ON CONFLICT (uid) DO UPDATE SET grace = excluded.grace, disrupted = excluded.disrupted
			WHERE (grace, disrupted) IS NOT (excluded.grace, excluded.disrupted)`, string(uid), int64(a.Grace), a.Disrupted)
	})
	if err != nil {
		return fmt.Errorf("store the rejection of pod %s: %w", uid, err)
	}
	return nil
}

// RemoveRejection durably removes the rejection of a pod.
func (s *Store) RemoveRejection(ctx context.Context, uid types.UID) error {
	err := s.commit(ctx, func(tx *transaction) error {
		for _, table := range []string{"admissions", "evictions"} {
			if err := tx.execOn(textRows("uid", string(uid)), "DELETE FROM "+table+" WHERE uid = ?", string(uid)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the rejection of pod %s: %w", uid, err)
	}
	return nil
}

// Rejections returns the rejections of all pods.
func (s *Store) Rejections(ctx context.Context) (map[types.UID]Admission, error) {
	list := map[types.UID]Admission{}
	err := s.query(ctx, func() { clear(list) }, func(rows *sql.Rows) error {
		var uid string
		var a Admission
		if err := rows.Scan(&uid, &a.Reason, &a.Message, &a.Grace, &a.Disrupted); err != nil {
			return err
		}
		list[types.UID(uid)] = a
		return nil
	}, "SELECT uid, reason, message, COALESCE(grace, 0), COALESCE(disrupted, 0) FROM admissions LEFT JOIN evictions USING (uid)")
	if err != nil {
		return nil, fmt.Errorf("read the rejected pods: %w", err)
	}
	return list, nil
}
