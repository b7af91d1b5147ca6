package link

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestDrain checks that the credential files are read after a limited time, even if other files in their directory change continuously.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		events := make(chan fsnotify.Event)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				select {
				case events <- fsnotify.Event{Name: "log"}:
				case <-ctx.Done():
				}
				time.Sleep(quietTime / 2) // in the bubble
			}
		}()
		began := time.Now()
		if !new(credentialFiles).drainEvents(ctx, events) || time.Since(began) > 2*maxDrain {
			t.Errorf("they are read after %s", time.Since(began))
		}
		stop()
		<-ended
	})
}
