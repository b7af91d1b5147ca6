package store

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// riders are values of meta that are written in each transaction that writes pods, by key. The
// zero value is ready.
type riders struct {
	mu    sync.Mutex
	value map[string]func() string
}

// Ride makes each UpdatePods with a change store a value of meta in its transaction. Use it for
// values that must never be older than the pods, but need no write of their own. The caller of
// UpdatePods blocks while value runs; value may run more than once, and must not use the store.
func (s *Store) Ride(key string, value func() string) {
	s.riders.mu.Lock()
	defer s.riders.mu.Unlock()
	if s.riders.value == nil {
		s.riders.value = map[string]func() string{}
	}
	s.riders.value[key] = value
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
