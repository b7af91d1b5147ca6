package store

import (
	"context"
	"fmt"
)

// emptyKey is a key in the table meta. The transaction that creates the first tables also writes this key. MarkFilled removes it.
const emptyKey = "store.empty"

// IsNew returns true from the creation of the database until MarkFilled is called. The database is created on a new node, and after its
// file was deleted while pods ran. The result is stored, so an agent that was killed during the restoration continues it after a restart.
func (s *Store) IsNew(ctx context.Context) (bool, error) {
	_, empty, err := s.Meta(ctx, emptyKey)
	return empty, err
}

// MarkFilled records that the database is no longer new. Call it after its rows were restored from other sources, such as the runtime.
func (s *Store) MarkFilled(ctx context.Context) error {
	err := s.commit(ctx, func(tx *transaction) error {
		return tx.execOn(textRows("key", emptyKey), "DELETE FROM meta WHERE key = ?", emptyKey)
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", emptyKey, err)
	}
	return nil
}
