package plugins

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// lists sends one after another without a pause.
type lists struct{ left int }

func (l *lists) Recv() (*int, error) {
	if l.left == 0 {
		return nil, io.EOF
	}
	l.left--
	return &l.left, nil
}

// TestEachList: lists are taken no more often than ten times in a second, the first one at once, until
// the plugin, the agent or who takes them has had enough.
func TestEachList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, taken := time.Now(), 0
		err := EachList(t.Context(), &lists{5}, func(*int) error { taken++; return nil })
		if took := time.Since(began); err != io.EOF || taken != 5 || took != 4*listEvery {
			t.Errorf("%d were taken in %v: %v", taken, took, err)
		}
		full := errors.New("full")
		if err := EachList(t.Context(), &lists{5}, func(left *int) error {
			if *left == 3 {
				return full
			}
			return nil
		}); err != full {
			t.Error(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		taken = 0
		if err := EachList(ctx, &lists{5}, func(*int) error { taken++; stop(); return nil }); err != context.Canceled || taken != 1 {
			t.Errorf("%d were taken after the end: %v", taken, err)
		}
	})
}
