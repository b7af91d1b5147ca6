package ctrd

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// A silentRunner is the runner of a container that cannot end. DeleteEnded returns only when its context ends.
type silentRunner struct {
	runner
	killed chan string
}

func (r silentRunner) Kill(_ context.Context, k wire.KillRequest) error {
	r.killed <- k.ID
	return nil
}

func (r silentRunner) DeleteEnded(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestUnknownCannotEnd checks unknown containers that cannot end. The start of the agent continues after a timeout, which does not grow
// with each container. The IDs are occupied.
func TestUnknownCannotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{log: slog.New(slog.DiscardHandler), occupied: map[string]bool{}, containers: map[string]*container{"known": {}}}
		run := silentRunner{killed: make(chan string, 64)}
		adopted := map[string]adoptedContainer{"known": {client: run}}
		for i := range 16 {
			adopted[strconv.Itoa(i)] = adoptedContainer{client: run}
		}
		begin := time.Now()
		alive := r.endUnknown(t.Context(), adopted)
		if took := time.Since(begin); took > 2*cleanupTimeout {
			t.Errorf("it took %v", took)
		}
		delete(adopted, "known")
		want := slices.Sorted(maps.Keys(adopted))
		if got := slices.Sorted(slices.Values(alive)); !slices.Equal(got, want) || len(run.killed) != len(want) {
			t.Errorf("alive: %v; %d were killed", got, len(run.killed))
		}
		if got := slices.Sorted(maps.Keys(r.occupied)); !slices.Equal(got, want) {
			t.Errorf("occupied: %v", got)
		}
	})
}

// TestRemovalsAreStuck checks removals that ignore their context, as a system call does. The start of the agent continues after a timeout,
// which does not grow with each removal, and the IDs are occupied.
func TestRemovalsAreStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{log: slog.New(slog.DiscardHandler), occupied: map[string]bool{}}
		responds := make(chan struct{})
		var paths, want []string
		for i := range maxRemovals {
			want = append(want, strconv.Itoa(i))
			paths = append(paths, "/b/"+want[i])
		}
		begin := time.Now()
		left := r.removeAll(t.Context(), paths, func(context.Context, string) error { <-responds; return nil })
		if took := time.Since(begin); took > 2*cleanupTimeout {
			t.Errorf("it took %v", took)
		}
		slices.Sort(want)
		slices.Sort(left)
		if occupied := slices.Sorted(maps.Keys(r.occupied)); !slices.Equal(left, want) || !slices.Equal(occupied, want) {
			t.Errorf("left: %v; occupied: %v", left, occupied)
		}
		close(responds)
	})
}
