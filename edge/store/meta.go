package store

import (
	"context"
	"fmt"
)

// Meta returns a value that SetMeta stored.
func (s *Store) Meta(ctx context.Context, key string) (value string, found bool, err error) {
	value, found, err = s.readValue(ctx, "SELECT value FROM meta WHERE key = ?", key)
	if err != nil {
		return "", false, fmt.Errorf("read %s: %w", key, err)
	}
	return value, found, nil
}

// SetMeta durably stores a small value of the node under a key.
func (s *Store) SetMeta(ctx context.Context, key, value string) error {
	err := s.commit(ctx, func(tx *transaction) error { return putMeta(tx, key, value) })
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	return nil
}

// SetMetaOrRetry is SetMeta for a value that its owner uses even if the write fails. After an error, the writer repeats the write until it
// succeeds, or until a later call for the key replaces the value.
func (s *Store) SetMetaOrRetry(ctx context.Context, key, value string) error {
	err := s.commitRows(ctx, rowChange{keyOfRow("meta", key), func(tx *transaction) error {
		return putMeta(tx, key, value)
	}})
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	return nil
}

const putMetaRow = `
	INSERT INTO meta (key, value) VALUES (?, ?)
	ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value IS NOT excluded.value`

func putMeta(tx *transaction, key, value string) error {
	return tx.execOn(textRows("key", key), putMetaRow, key, value)
}
