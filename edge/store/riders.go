package store

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// riders are values of the meta table that are written with pods: each by the key that Ride
// was given. The zero value is ready.
type riders struct {
	mu    sync.Mutex
	value map[string]func() string
}

// Ride makes every UpdatePods that changes something store a value of Meta in its transaction:
// for what must never be older than the pods, and is worth no write of its own. value is called
// by whoever updates pods, more than once if the transaction is repeated; it must not use the
// store.
func (s *Store) Ride(key string, value func() string) {
	s.riding.mu.Lock()
	defer s.riding.mu.Unlock()
	if s.riding.value == nil {
		s.riding.value = map[string]func() string{}
	}
	s.riding.value[key] = value
}

// write stores all values in a transaction.
func (r *riders) write(ctx context.Context, tx *sql.Tx) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, value := range r.value {
		if err := putMeta(ctx, tx, key, value()); err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
	}
	return nil
}
