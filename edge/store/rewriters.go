package store

import (
	"context"
	"errors"
	"sync"
)

// rewriters contains the functions of AddRewriter. The zero value is ready for use.
type rewriters struct {
	mu   sync.Mutex
	list []func(context.Context) error
}

// AddRewriter registers a function that stores all rows of the named table again from the memory of their owner. RewriteRows calls it after
// the database was replaced during use. The function must not store a row that is older than the row in the table.
func (s *Store) AddRewriter(_ string, rewrite func(context.Context) error) {
	s.rewriters.mu.Lock()
	defer s.rewriters.mu.Unlock()
	s.rewriters.list = append(s.rewriters.list, rewrite)
}

// RewriteRows calls all functions of AddRewriter. Call it after WatchRepairs has reported a repair, when the pods are stored again.
func (s *Store) RewriteRows(ctx context.Context) error {
	s.rewriters.mu.Lock()
	list := s.rewriters.list // append does not change these elements
	s.rewriters.mu.Unlock()
	var err error
	for _, rewrite := range list {
		err = errors.Join(err, rewrite(ctx))
	}
	return err
}
