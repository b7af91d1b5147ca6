package store

import (
	"context"
	"database/sql"
	"fmt"
)

// emptyKey is a key of meta that exists from the creation of the database until MarkFilled is called. The transaction that creates the
// first tables writes it.
const emptyKey = "store.empty"

// IsNew reports whether the database is new: MarkFilled was not called since its creation. The database is new on a new node, and after its
// file was deleted while pods ran. The result stays true after a restart, so an agent that was killed during the restoration continues
// the restoration.
func (s *Store) IsNew(ctx context.Context) (bool, error) {
	_, empty, err := s.Meta(ctx, emptyKey)
	return empty, err
}

// MarkFilled records that the database was restored from the other sources.
func (s *Store) MarkFilled(ctx context.Context) error {
	err := s.commit(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM meta WHERE key = ?", emptyKey)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", emptyKey, err)
	}
	return nil
}
