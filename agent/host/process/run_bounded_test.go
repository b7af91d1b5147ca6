package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestBounded checks that an agent whose goroutines hang exits after a time limit. An agent whose goroutines end exits at once.
func TestBounded(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		takes time.Duration // time between the request to stop and the return
		want  error
	}{"at once": {0, failed}, "soon": {time.Second, failed}, "never": {time.Hour, ErrAbandoned}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				time.AfterFunc(time.Minute, end)
				began := time.Now()
				err := RunBounded(ctx, func() error {
					<-ctx.Done()
					time.Sleep(c.takes)
					return failed
				})
				defer time.Sleep(c.takes) // the bubble waits for the end of every goroutine
				if took := time.Since(began); err != c.want || took > time.Minute+callGrace {
					t.Errorf("%v after %v, want %v", err, took, c.want)
				}
			})
		})
	}
}
