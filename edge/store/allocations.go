package store

import (
	"context"
	"database/sql"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An Allocation contains the resources of a pod that was resized in place (KEP-1287). It is stored until the pod is removed.
type Allocation struct {
	Generation int64       // generation of the pod's spec that requested the resources
	Resources  *v1.PodSpec // contains only the names and resources of the containers, and the resources of the pod
}

// Allocate durably stores the resources of pods. It stores all rows or none. It skips pods that are not stored, except before MarkFilled.
func (s *Store) Allocate(ctx context.Context, given map[types.UID]Allocation) error {
	rows := map[types.UID][]byte{}
	for uid, a := range given {
		var err error
		if rows[uid], err = a.Resources.Marshal(); err != nil {
			return fmt.Errorf("encode the resources of pod %s: %w", uid, err)
		}
	}
	err := s.commit(ctx, func(tx *transaction) error {
		for uid, a := range given {
			err := tx.execOn(textRows("uid", string(uid)), `
				INSERT INTO allocations (uid, generation, resources)
				SELECT ?, ?, ? WHERE `+podIsKnown+`
				ON CONFLICT (uid) DO UPDATE SET generation = excluded.generation, resources = excluded.resources
				WHERE (generation, resources) IS NOT (excluded.generation, excluded.resources)`,
				string(uid), a.Generation, rows[uid], string(uid))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store the resources of resized pods: %w", err)
	}
	return nil
}

// Allocations returns all rows. It logs and omits a row that cannot be decoded. The pod of such a row then has the resources with which its
// sandbox was created.
func (s *Store) Allocations(ctx context.Context) (map[types.UID]Allocation, error) {
	list := map[types.UID]Allocation{}
	err := s.query(ctx, func() { clear(list) }, func(rows *sql.Rows) error {
		var uid string
		var resources []byte
		a := Allocation{Resources: &v1.PodSpec{}}
		if err := rows.Scan(&uid, &a.Generation, &resources); err != nil {
			return err
		}
		if err := a.Resources.Unmarshal(resources); err != nil {
			s.log.Error("the resources of a resized pod cannot be decoded", "uid", uid, "error", err)
			return nil
		}
		list[types.UID(uid)] = a
		return nil
	}, "SELECT uid, generation, resources FROM allocations")
	if err != nil {
		return nil, fmt.Errorf("read the resources of resized pods: %w", err)
	}
	return list, nil
}
