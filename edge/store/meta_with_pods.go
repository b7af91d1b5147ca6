package store

import (
	"fmt"
	"sync"
)

// metaValues contains values of the table meta that each transaction with pods also writes. The zero value is ready for use.
type metaValues struct {
	mu    sync.Mutex
	value map[string]func() string
}

// AddMetaValue registers a value of the table meta. Each UpdatePods that changes rows stores the value in the same transaction. Use
// AddMetaValue for values that must never be older than the pods and need no separate writes. UpdatePods calls the given function, possibly
// more than once, and waits for the result. The function must not use the store.
func (s *Store) AddMetaValue(key string, value func() string) {
	s.metaValues.mu.Lock()
	defer s.metaValues.mu.Unlock()
	if s.metaValues.value == nil {
		s.metaValues.value = map[string]func() string{}
	}
	s.metaValues.value[key] = value
}

// write stores all values in a transaction.
func (r *metaValues) write(tx *transaction) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, value := range r.value {
		if err := putMeta(tx, key, value()); err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
	}
	return nil
}
