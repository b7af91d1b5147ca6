package store

import (
	"context"
	"database/sql"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Devices contains the devices of a container that belong to one resource, such as nvidia.com/gpu. They are stored until the pod is
// removed.
type Devices struct {
	UID       types.UID // UID of the pod
	Container string
	Resource  string
	Count     int    // number of devices
	Given     []byte // the device IDs and the plugin's response, encoded by agent/device
}

// GiveDevices durably stores the devices of containers. It stores all rows or none. It skips pods that are not stored, except before
// MarkFilled.
func (s *Store) GiveDevices(ctx context.Context, rows []Devices) error {
	err := s.commit(ctx, func(tx *transaction) error {
		for _, d := range rows {
			err := tx.execOn(textRows("uid", string(d.UID)), `
				INSERT INTO devices (uid, container, resource, count, given)
				SELECT ?, ?, ?, ?, ? WHERE `+podIsKnown+`
				ON CONFLICT (uid, container, resource) DO UPDATE SET count = excluded.count, given = excluded.given
				WHERE (count, given) IS NOT (excluded.count, excluded.given)`,
				string(d.UID), d.Container, d.Resource, d.Count, d.Given, string(d.UID))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store the devices of containers: %w", err)
	}
	return nil
}

// TakeDevices durably removes a pod's devices of the given resources. The rows of other resources belong to other callers.
func (s *Store) TakeDevices(ctx context.Context, uid types.UID, resources ...string) error {
	err := s.commit(ctx, func(tx *transaction) error {
		for _, r := range resources {
			set := textRows("uid", string(uid))
			if err := tx.execOn(set, "DELETE FROM devices WHERE (uid, resource) = (?, ?)", string(uid), r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the devices of pod %s: %w", uid, err)
	}
	return nil
}

// Devices returns all rows.
func (s *Store) Devices(ctx context.Context) ([]Devices, error) {
	var list []Devices
	err := s.query(ctx, func() { list = nil }, func(rows *sql.Rows) error {
		var uid string
		var d Devices
		if err := rows.Scan(&uid, &d.Container, &d.Resource, &d.Count, &d.Given); err != nil {
			return err
		}
		d.UID = types.UID(uid)
		list = append(list, d)
		return nil
	}, "SELECT uid, container, resource, count, given FROM devices")
	if err != nil {
		return nil, fmt.Errorf("read the devices of containers: %w", err)
	}
	return list, nil
}

// A Claim is a ResourceClaim that a driver has prepared, or may have prepared. It is stored until the driver has unprepared the claim,
// which can be after the removal of its pods.
type Claim struct {
	UID             types.UID
	Driver          string
	Namespace, Name string
	State           []byte
}

// PutClaims durably stores claims. It stores all claims or none.
func (s *Store) PutClaims(ctx context.Context, claims []Claim) error {
	err := s.commit(ctx, func(tx *transaction) error {
		for _, c := range claims {
			err := tx.execOn(textRows("uid", string(c.UID)), `
				INSERT INTO claims (uid, driver, namespace, name, state) VALUES (?, ?, ?, ?, ?)
				ON CONFLICT (uid, driver) DO UPDATE SET state = excluded.state WHERE state IS NOT excluded.state`,
				string(c.UID), c.Driver, c.Namespace, c.Name, c.State)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store resource claims: %w", err)
	}
	return nil
}

// RemoveClaims durably removes unprepared claims, by UID and driver.
func (s *Store) RemoveClaims(ctx context.Context, claims []Claim) error {
	err := s.commit(ctx, func(tx *transaction) error {
		for _, c := range claims {
			set := textRows("uid", string(c.UID))
			if err := tx.execOn(set, "DELETE FROM claims WHERE (uid, driver) = (?, ?)", string(c.UID), c.Driver); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove resource claims: %w", err)
	}
	return nil
}

// Claims returns all rows.
func (s *Store) Claims(ctx context.Context) ([]Claim, error) {
	var list []Claim
	err := s.query(ctx, func() { list = nil }, func(rows *sql.Rows) error {
		var uid string
		var c Claim
		if err := rows.Scan(&uid, &c.Driver, &c.Namespace, &c.Name, &c.State); err != nil {
			return err
		}
		c.UID = types.UID(uid)
		list = append(list, c)
		return nil
	}, "SELECT uid, driver, namespace, name, state FROM claims")
	if err != nil {
		return nil, fmt.Errorf("read the resource claims: %w", err)
	}
	return list, nil
}
