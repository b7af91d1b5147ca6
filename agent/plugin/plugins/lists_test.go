package plugins

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A lists is a stream that sends several lists without a pause.
type lists struct{ left int }

func (l *lists) Recv() (*int, error) {
	if l.left == 0 {
		return nil, io.EOF
	}
	l.left--
	return &l.left, nil
}

// TestEachList checks that EachList receives the first list immediately, and at most ten lists per second afterwards. It returns when the
// stream or the context ends, or when the callback returns an error.
func TestEachList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, taken := time.Now(), 0
		err := EachList(t.Context(), &lists{5}, func(*int) error { taken++; return nil })
		if took := time.Since(began); err != io.EOF || taken != 5 || took != 4*listInterval {
			t.Errorf("%d lists were received in %v: %v", taken, took, err)
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
			t.Errorf("%d lists were received after the end: %v", taken, err)
		}
	})
}
