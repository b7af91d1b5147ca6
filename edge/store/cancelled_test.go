package store

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// An endingContext ends when it has been used a number of times.
type endingContext struct {
	context.Context
	cancel context.CancelFunc
	left   *atomic.Int64
}

func (c endingContext) Done() <-chan struct{} {
	if c.left.Add(-1) <= 0 {
		c.cancel()
	}
	return c.Context.Done()
}

// TestOpeningIsCancelled ends the start of the agent at many points while it replaces a broken database. The next start has all readable
// rows.
func TestOpeningIsCancelled(t *testing.T) {
	from := filepath.Join(t.TempDir(), "islet.db")
	want := breakDatabase(t, from)
	cancelled := 0
	for uses := int64(1); ; uses += 1 + uses/10 {
		path := copyFiles(t, from)
		ctx, cancel := context.WithCancel(t.Context())
		left := &atomic.Int64{}
		left.Store(uses)
		s, err := Open(endingContext{ctx, cancel, left}, path, slog.New(slog.DiscardHandler))
		cancel()
		if err == nil {
			must(t, s.Close())
		} else {
			cancelled++
		}
		must(t, hasRows(t, path, want).Close())
		if left.Load() > 0 {
			break // the whole start has used ctx less often
		}
	}
	if cancelled < 10 {
		t.Errorf("only %d starts were cancelled", cancelled)
	}
}
