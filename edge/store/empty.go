package store

import (
	"context"
	"database/sql"
	"fmt"
)

// emptyKey is the key of meta that a database has until Filled is called. The transaction that
// makes the first tables writes it.
const emptyKey = "store.empty"

// Empty says that the database was made anew, and that nobody has called Filled since: on a
// node that was just installed, and also where the file was deleted while pods ran. Every start
// of the agent is told until then, so that one that was killed meanwhile loses nothing.
func (s *Store) Empty(ctx context.Context) (bool, error) {
	_, empty, err := s.Meta(ctx, emptyKey)
	return empty, err
}

// Filled says that the database has what could be found elsewhere.
func (s *Store) Filled(ctx context.Context) error {
	err := s.commit(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM meta WHERE key = ?", emptyKey)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", emptyKey, err)
	}
	return nil
}
