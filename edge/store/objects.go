package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// An ObjectKey names objects that pods of this node use.
type ObjectKey struct {
	Kind      string // ConfigMap, Secret, Service, PersistentVolume ...
	Namespace string
	Name      string // empty: all of that kind in the namespace
}

// An Object is what the API server last said about a key.
type Object struct {
	ObjectKey
	Version string // resourceVersion from which to go on watching
	Gone    bool   // deleted since; the data is kept for the pods that have it
	Data    []byte // the kind's list, protobuf; an empty list says that there is none
}

// PutObject durably stores an object, sealed.
func (s *Store) PutObject(ctx context.Context, o Object) error {
	sealed, err := s.seal.close(o.Data, "objects", o.Kind, o.Namespace, o.Name)
	if err != nil {
		return fmt.Errorf("seal %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
	}
	err = s.commit(ctx, func(tx *sql.Tx) error {
		var old []byte
		err := tx.QueryRowContext(ctx, "SELECT data FROM objects WHERE (kind, namespace, name, version, gone) = (?, ?, ?, ?, ?)",
			o.Kind, o.Namespace, o.Name, o.Version, o.Gone).Scan(&old)
		if err == nil {
			if data, err := s.seal.open(old, "objects", o.Kind, o.Namespace, o.Name); err == nil && bytes.Equal(data, o.Data) {
				return nil
			}
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO objects (kind, namespace, name, version, gone, data) VALUES (?, ?, ?, ?, ?, ?)",
			o.Kind, o.Namespace, o.Name, o.Version, o.Gone, sealed)
		return err
	})
	if err != nil {
		return fmt.Errorf("store %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
	}
	return nil
}

// RemoveObjects forgets objects that no pod uses.
func (s *Store) RemoveObjects(ctx context.Context, keys ...ObjectKey) error {
	if len(keys) == 0 {
		return nil
	}
	err := s.commit(ctx, func(tx *sql.Tx) error {
		for _, k := range keys {
			if _, err := tx.ExecContext(ctx, "DELETE FROM objects WHERE (kind, namespace, name) = (?, ?, ?)", k.Kind, k.Namespace, k.Name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget stored objects: %w", err)
	}
	return nil
}

// VoidObjects durably drops the versions of all objects: the API server has another
// history than the one that they are of.
func (s *Store) VoidObjects(ctx context.Context) error {
	err := s.commit(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE objects SET version = '' WHERE version <> ''")
		return err
	})
	if err != nil {
		return fmt.Errorf("void the versions of stored objects: %w", err)
	}
	return nil
}

// Objects gives all rows. Those that cannot be opened, since the key is lost, are
// logged and left out: the API server has them still.
func (s *Store) Objects(ctx context.Context) ([]Object, error) {
	var all []Object
	var lost unreadable
	err := s.query(ctx, func() { all, lost = nil, unreadable{} }, func(rows *sql.Rows) error {
		var o Object
		var sealed []byte
		if err := rows.Scan(&o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Gone, &sealed); err != nil {
			return err
		}
		var err error
		if o.Data, err = s.seal.open(sealed, "objects", o.Kind, o.Namespace, o.Name); err != nil {
			lost.add(err)
			return nil
		}
		all = append(all, o)
		return nil
	}, "SELECT kind, namespace, name, version, gone, data FROM objects")
	if err != nil {
		return nil, fmt.Errorf("read the stored objects: %w", err)
	}
	lost.tell(s, "ConfigMaps, Secrets and Services", fetched)
	return all, nil
}

// unreadable counts rows that cannot be opened.
type unreadable struct {
	n   int
	why error
}

func (u *unreadable) add(err error) { u.n, u.why = u.n+1, err }

// fetched is what happens to what the API server has, too.
const fetched = "they are fetched anew from the API server"

func (u *unreadable) tell(s *Store, what, then string) {
	if u.n > 0 {
		s.log.Error("stored "+what+" cannot be read, as the database was sealed with another key: "+then,
			"rows", u.n, "key", s.seal.path, "error", u.why)
	}
}
