package image

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestTurns checks that a layer gives its turn to a waiting layer after turnTime, and continues when it gets a turn again. If no other
// layer waits, it continues without a pause.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newSharedResources(1)
		long := &allocation{shared: &shared}
		if err := long.waitForTurn(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(turnTime)
		if err := long.takeTurns(t.Context()); err != nil || !long.turn {
			t.Fatalf("alone: %v", err)
		}
		var short atomic.Bool
		go func() {
			p := &allocation{shared: &shared}
			defer p.releaseAll()
			if err := p.waitForTurn(t.Context()); err != nil {
				t.Error(err)
			}
			short.Store(true)
		}()
		synctest.Wait()
		if short.Load() {
			t.Error("two layers have the turn")
		}
		if err := long.takeTurns(t.Context()); err != nil || !short.Load() || !long.turn {
			t.Errorf("the waiting layer had its turn: %v (%v)", short.Load(), err)
		}
		// The layer keeps its turn until turnTime has passed.
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error)
		go func() { second <- (&allocation{shared: &shared}).waitForTurn(ctx) }()
		synctest.Wait()
		time.Sleep(turnTime / 2)
		if err := long.takeTurns(t.Context()); err != nil || !long.turn {
			t.Errorf("within its share: %v", err)
		}
		cancel()
		if err := <-second; err == nil {
			t.Error("the cancelled layer had a turn")
		}
		long.releaseAll()
	})
}

// A hangingReader waits for a minute before each read, as a defective stick does, or for no time.
type hangingReader struct{ wait time.Duration }

func (r *hangingReader) Read(b []byte) (int, error) {
	time.Sleep(r.wait) // in the bubble's time
	return copy(b, "x"), io.EOF
}

// TestSlowMedium checks that a layer has no turn while its medium does not answer, and has one after each read. A read that is not slow
// keeps the turn. If no turn comes, the read ends with ctx.
func TestSlowMedium(t *testing.T) {
	for wait, want := range map[time.Duration]bool{0: false, slowRead / 2: false, time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			shared := newSharedResources(1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			at := &allocation{shared: &shared}
			if err := at.waitForTurn(ctx); err != nil {
				t.Fatal(err)
			}
			r := patientReader{&hangingReader{wait}, at, func() error { return at.waitForTurn(ctx) }}
			had := make(chan time.Duration, 1)
			began := time.Now()
			other := &allocation{shared: &shared}
			go func() {
				if err := other.waitForTurn(context.Background()); err != nil {
					t.Error(err)
				}
				had <- time.Since(began)
				other.releaseAll()
			}()
			synctest.Wait()
			b := make([]byte, 2)
			if n, err := r.Read(b); n != 1 || err != io.EOF || !at.turn || time.Since(began) != wait {
				t.Errorf("%v: %d, %v, turn %v, after %v", wait, n, err, at.turn, time.Since(began))
			}
			if (len(had) == 1) != want || want && <-had != slowRead {
				t.Errorf("%v: the other layer had a turn: %v", wait, !want)
			}
			if want {
				go func() { _ = other.waitForTurn(context.Background()) }()
				time.AfterFunc(2*wait, cancel)
				if _, err := r.Read(b); err != context.Canceled {
					t.Errorf("without a turn: %v", err)
				}
			}
			at.releaseAll()
			synctest.Wait()
		})
	}
}

// TestMemoryClasses checks the maximum number of concurrent layers in the memory classes "much" and "some". A layer that waits for memory
// must not have a turn. In the end, all layers have finished.
func TestMemoryClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newSharedResources(2)
		var much, some, mostMuch, mostSome, ended atomic.Int32
		count := func(now, most *atomic.Int32) func() {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			return func() { now.Add(-1) }
		}
		for i := range 30 {
			go func() {
				p := &allocation{shared: &shared}
				defer p.releaseAll()
				check := func(err error) {
					if err != nil {
						t.Error(err)
					}
				}
				check(p.waitForTurn(t.Context()))
				if i%3 > 0 {
					check(p.needWindow(t.Context(), someWindow))
					defer count(&some, &mostSome)()
				}
				time.Sleep(time.Second)
				check(p.takeTurns(t.Context()))
				if i%3 > 1 {
					check(p.needNames(t.Context(), someNames+1))
					defer count(&much, &mostMuch)()
				}
				if !p.turn {
					t.Error("no turn")
				}
				time.Sleep(time.Second)
				check(p.takeTurns(t.Context()))
				ended.Add(1)
			}()
		}
		time.Sleep(time.Hour)
		if ended.Load() != 30 || mostMuch.Load() != muchAtOnce || mostSome.Load() != someAtOnce {
			t.Errorf("%d ended; at most %d in the class much, %d in some", ended.Load(), mostMuch.Load(), mostSome.Load())
		}
		last := &allocation{shared: &shared}
		if err := last.waitForTurn(t.Context()); err != nil {
			t.Fatal(err)
		}
		last.releaseAll()
	})
}

// TestDocumentsWait checks an image that waits until the documents of another image are read. The wait does not count towards the timeout
// for the registry. After the wait, the registry has the whole timeout to respond.
func TestDocumentsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{shared: newSharedResources(1)}
		if err := s.shared.documents.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		d := s.newDocuments(nil)
		ctx, done := d.withTimeout(t.Context(), time.Minute)
		defer done()
		got := make(chan error, 1)
		go func() { got <- d.chargeBytes(ctx, "", smallDocuments+1) }()
		time.Sleep(time.Hour)
		s.shared.documents.Release(1)
		if err := <-got; err != nil || context.Cause(ctx) != nil {
			t.Fatalf("got %v, %v", err, context.Cause(ctx))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if cause := context.Cause(ctx); cause != errStalled {
			t.Errorf("reading does not time out: %v", cause)
		}
		s.shared.documents.Release(1)
		s.stall = time.Minute
		slow := s.newDocuments(func(ctx context.Context, _ ocispec.Descriptor) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		target := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromString("x"), Size: smallDocuments + 1}
		if _, err := s.choosePulled(t.Context(), target, slow); err != errStalled {
			t.Errorf("a registry that sends nothing: %v", err)
		}
	})
}
