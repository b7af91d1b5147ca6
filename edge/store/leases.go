package store

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"net/netip"
)

// AddLease durably leases an address to an owner, which is a sandbox. If another owner has the address, the error wraps fs.ErrExist. If the
// same owner already has the address, AddLease succeeds.
func (s *Store) AddLease(ctx context.Context, addr netip.Addr, owner string) error {
	var has string
	err := s.commit(ctx, func(tx *transaction) error {
		has = owner
		raw := addr.AsSlice()
		added, err := tx.change(blobRows("addr", raw), "INSERT OR IGNORE INTO leases (addr, owner) VALUES (?, ?)", raw, owner)
		if err != nil || added > 0 {
			return err
		}
		now, _, err := tx.query("SELECT owner FROM leases WHERE addr = ?", raw)
		has, _ = now.(string)
		return err
	})
	if err == nil && has != owner {
		err = fmt.Errorf("leased to %s: %w", has, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("lease address %s to %s: %w", addr, owner, err)
	}
	return nil
}

// ReleaseLeases releases all addresses of an owner. A power cut before the next durable write that changes a row may restore the leases.
// The owner is then a sandbox that no longer exists, and the network releases its leases at the next start. A lease of one of these
// addresses to another owner is such a write, so it never exists together with the former lease.
func (s *Store) ReleaseLeases(ctx context.Context, owner string) error {
	err := s.commitCoalesced(ctx, func(tx *transaction) error {
		return tx.execOn(textRows("owner", owner), "DELETE FROM leases WHERE owner = ?", owner)
	})
	if err != nil {
		return fmt.Errorf("release the addresses of %s: %w", owner, err)
	}
	return nil
}

// Leases returns the owner of each leased address.
func (s *Store) Leases(ctx context.Context) (map[netip.Addr]string, error) {
	list := map[netip.Addr]string{}
	err := s.query(ctx, func() { clear(list) }, func(rows *sql.Rows) error {
		var raw []byte
		var owner string
		if err := rows.Scan(&raw, &owner); err != nil {
			return err
		}
		if addr, ok := netip.AddrFromSlice(raw); ok {
			list[addr] = owner
		}
		return nil
	}, "SELECT addr, owner FROM leases")
	if err != nil {
		return nil, fmt.Errorf("read the leases of addresses: %w", err)
	}
	return list, nil
}
