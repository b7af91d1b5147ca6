package link

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestClockFloor checks that a known time is a lower bound for the clock. The machine's clock starts in the year 2000, because the test
// runs in a bubble.
func TestClockFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := &memory{values: map[string]string{}}
		config := Config{Kubeconfig: "kubeconfig", Meta: meta, Log: slog.New(slog.DiscardHandler)}
		c, err := newClock(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Now().Equal(time.Now()) {
			t.Error("without a lower bound Now must be the machine's time")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.run(ctx) }()
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if meta.writes != 0 {
			t.Error("the machine's time was stored, although it may be wrong")
		}
		known := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
		c.proven = sinceNow(known)
		c.evaluateDate(known.Add(time.Minute), known.AddDate(1, 0, 0), false)
		c.evaluateDate(known.Add(-time.Hour), known.AddDate(1, 0, 0), false)
		known = known.Add(time.Minute)
		time.Sleep(150 * time.Minute)
		synctest.Wait()
		if want := known.Add(150 * time.Minute); !c.Now().Equal(want) {
			t.Errorf("it is %s, not %s", c.Now(), want)
		}
		if meta.writes != 2 {
			t.Errorf("%d writes in two and a half hours", meta.writes)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		c, err = newClock(t.Context(), config)
		if err != nil || c.Now().Before(known.Add(150*time.Minute)) {
			t.Errorf("after a restart it is %s: %v", c.Now(), err)
		}
		meta.values[floorKey] = "x"
		if c, err = newClock(t.Context(), config); err != nil || !c.Now().Equal(time.Now()) {
			t.Errorf("a broken floor is not a floor: %v", err)
		}
	})
}
