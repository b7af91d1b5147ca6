package store

import (
	"context"
	"database/sql"
	"fmt"
)

// A LocalKey identifies an object that a manifest on this node defines. Two sources can have objects with the same name.
type LocalKey struct {
	Source    string // file, http or local
	Kind      string // ConfigMap, Secret or PersistentVolumeClaim
	Namespace string
	Name      string
}

func (k LocalKey) rowKey() []string { return []string{"local", k.Source, k.Kind, k.Namespace, k.Name} }

// String returns the object's kind and name. It is used in messages.
func (k LocalKey) String() string { return k.Kind + " " + k.Namespace + "/" + k.Name }

// A Local is a stored object that a manifest on this node defines.
type Local struct {
	LocalKey
	Origin string // the file or URL; used in messages
	Gone   bool   // no manifest defines the object any more; the data is kept for the pods that use it
	Data   []byte // protobuf
}

// UpdateLocals durably writes encrypted objects, and removes others. It makes all changes or none.
func (s *Store) UpdateLocals(ctx context.Context, put []Local, remove []LocalKey) error {
	if len(put)+len(remove) == 0 {
		return nil
	}
	sealed := make([][]byte, len(put))
	for i, o := range put {
		var err error
		if sealed[i], err = s.seal.encrypt(o.Data, o.rowKey()...); err != nil {
			return fmt.Errorf("seal %s: %w", o.LocalKey, err)
		}
	}
	err := s.commit(ctx, func(tx *transaction) error {
		for _, k := range remove {
			err := tx.exec("DELETE FROM local WHERE (source, kind, namespace, name) = (?, ?, ?, ?)",
				k.Source, k.Kind, k.Namespace, k.Name)
			if err != nil {
				return fmt.Errorf("remove %s: %w", k, err)
			}
		}
		for i, o := range put {
			err := tx.exec(`
				INSERT OR REPLACE INTO local (source, kind, namespace, name, origin, gone, data) VALUES (?, ?, ?, ?, ?, ?, ?)`,
				o.Source, o.Kind, o.Namespace, o.Name, o.Origin, o.Gone, sealed[i])
			if err != nil {
				return fmt.Errorf("write %s: %w", o.LocalKey, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store the objects of manifests: %w", err)
	}
	return nil
}

// Locals returns all rows. It logs and omits rows that cannot be decrypted because the key is lost. The manifests still have these
// objects.
func (s *Store) Locals(ctx context.Context) ([]Local, error) {
	var list []Local
	var lost unreadableRows
	err := s.query(ctx, func() { list, lost = nil, unreadableRows{} }, func(rows *sql.Rows) error {
		var o Local
		var sealed []byte
		if err := rows.Scan(&o.Source, &o.Kind, &o.Namespace, &o.Name, &o.Origin, &o.Gone, &sealed); err != nil {
			return err
		}
		var err error
		if o.Data, err = s.seal.decrypt(sealed, o.rowKey()...); err != nil {
			lost.add(err)
			return nil
		}
		list = append(list, o)
		return nil
	}, "SELECT source, kind, namespace, name, origin, gone, data FROM local")
	if err != nil {
		return nil, fmt.Errorf("read the objects of manifests: %w", err)
	}
	lost.logCount(s, "ConfigMaps, Secrets and claims of manifests",
		"they are read from the manifests again, and objects that were applied must be applied again")
	return list, nil
}
