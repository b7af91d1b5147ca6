package store

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
)

// An ObjectKey identifies one API object, or all objects of a kind in a namespace. It is the key of an item in package edge/object.
type ObjectKey struct {
	Kind      string // for example ConfigMap, Secret, Service
	Namespace string
	Name      string // empty for all objects of the kind in the namespace
}

// An Object is the last answer of the API server for a key.
type Object struct {
	ObjectKey
	Version string // resourceVersion from which a watch continues
	Gone    bool   // the API server has deleted the object; the data is kept for the pods that use it
	Data    []byte // a list of the kind, as protobuf; an empty list means that the object does not exist
}

// PutObject encrypts an object and stores it durably. It does not write an unchanged object. After an error, the writer repeats the write
// until it succeeds, because pods use the object in any case.
func (s *Store) PutObject(ctx context.Context, o Object) error {
	voids := s.voids.Load()
	err := s.commitRows(ctx, rowChange{keyOfRow("objects", o.Kind, o.Namespace, o.Name), func(tx *transaction) error {
		o := o
		if s.voids.Load() != voids {
			o.Version = ""
		}
		old, found, err := tx.query("SELECT data FROM objects WHERE (kind, namespace, name, version, gone) = (?, ?, ?, ?, ?)",
			o.Kind, o.Namespace, o.Name, o.Version, o.Gone)
		if err != nil {
			return err
		}
		if old, isBlob := old.([]byte); found && isBlob {
			if data, err := s.seal.decrypt(old, "objects", o.Kind, o.Namespace, o.Name); err == nil && bytes.Equal(data, o.Data) {
				return nil
			}
		}
		sealed, err := s.seal.encrypt(o.Data, "objects", o.Kind, o.Namespace, o.Name) // here: a retry also creates a missing key file
		if err != nil {
			return fmt.Errorf("seal: %w", err)
		}
		return tx.exec(`
			INSERT OR REPLACE INTO objects (kind, namespace, name, version, gone, data) VALUES (?, ?, ?, ?, ?, ?)`,
			o.Kind, o.Namespace, o.Name, o.Version, o.Gone, sealed)
	}})
	if err != nil {
		return fmt.Errorf("store %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
	}
	return nil
}

// RemoveObjects durably removes objects that no pod uses. After an error, the writer repeats the removal until it succeeds.
func (s *Store) RemoveObjects(ctx context.Context, keys ...ObjectKey) error {
	if len(keys) == 0 {
		return nil
	}
	var rows []rowChange
	for _, k := range keys {
		rows = append(rows, rowChange{keyOfRow("objects", k.Kind, k.Namespace, k.Name), func(tx *transaction) error {
			return tx.exec("DELETE FROM objects WHERE (kind, namespace, name) = (?, ?, ?)", k.Kind, k.Namespace, k.Name)
		}})
	}
	err := s.commitRows(ctx, rows...)
	if err != nil {
		return fmt.Errorf("remove stored objects: %w", err)
	}
	return nil
}

// VoidObjects durably removes the versions of all objects. It is called after the API server was restored from a backup, because the
// versions are then invalid. After an error, the writer repeats the removal until it succeeds. An object that could not be written before
// is then written without its version.
func (s *Store) VoidObjects(ctx context.Context) error {
	s.voids.Add(1)
	err := s.commitRows(ctx, rowChange{keyOfRow("versions of objects"), func(tx *transaction) error {
		return tx.exec("UPDATE objects SET version = '' WHERE version <> ''")
	}})
	if err != nil {
		return fmt.Errorf("remove the versions of stored objects: %w", err)
	}
	return nil
}

// Objects returns all rows. It logs and omits rows that cannot be decrypted because the key is lost. The API server still has these
// objects.
func (s *Store) Objects(ctx context.Context) ([]Object, error) {
	var list []Object
	var lost unreadableRows
	err := s.query(ctx, func() { list, lost = nil, unreadableRows{} }, func(rows *sql.Rows) error {
		var o Object
		var sealed []byte
		if err := rows.Scan(&o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Gone, &sealed); err != nil {
			return err
		}
		var err error
		if o.Data, err = s.seal.decrypt(sealed, "objects", o.Kind, o.Namespace, o.Name); err != nil {
			lost.add(err)
			return nil
		}
		list = append(list, o)
		return nil
	}, "SELECT kind, namespace, name, version, gone, data FROM objects")
	if err != nil {
		return nil, fmt.Errorf("read the stored objects: %w", err)
	}
	lost.logCount(s, "ConfigMaps, Secrets and Services", fetchedAgain)
	return list, nil
}

// unreadableRows counts rows that cannot be decrypted.
type unreadableRows struct {
	n   int
	why error
}

func (u *unreadableRows) add(err error) { u.n, u.why = u.n+1, err }

// fetchedAgain is a part of a log message about lost objects. It names the consequence: the API server still has the objects, so they are
// read again.
const fetchedAgain = "they are read from the API server again"

func (u *unreadableRows) logCount(s *Store, what, then string) {
	if u.n > 0 {
		s.log.Error("stored "+what+" cannot be decrypted, as the database was sealed with another key: "+then,
			"rows", u.n, "key", s.seal.place.Path(), "error", u.why)
	}
}
