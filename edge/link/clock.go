package link

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	floorKey   = "clock-floor"
	saveEvery  = time.Hour
	saveWithin = 5 * time.Second // at the end
)

// A clock knows a time that has certainly passed.
type clock struct {
	meta Meta
	log  *slog.Logger

	mu     sync.Mutex
	proven time.Time // zero: nothing is known
	at     time.Time // of the machine, when it was proven; its monotonic reading counts
}

func newClock(ctx context.Context, meta Meta, log *slog.Logger) (*clock, error) {
	c := &clock{meta: meta, log: log}
	text, found, err := meta.Meta(ctx, floorKey)
	if err != nil {
		return nil, fmt.Errorf("read the time that has passed at least: %w", err)
	}
	if found {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			log.Warn("the stored time is not one: it is ignored", "error", err)
		} else {
			c.prove(t)
		}
	}
	return c, nil
}

// Now is the machine's time, or the floor if that is later.
func (c *clock) Now() time.Time {
	now := time.Now()
	if floor := c.floor(); floor.After(now) {
		return floor
	}
	return now
}

func (c *clock) floor() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proven.IsZero() {
		return time.Time{}
	}
	return c.proven.Add(time.Since(c.at))
}

// prove says that it is t or later.
func (c *clock) prove(t time.Time) {
	if !t.After(c.floor()) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proven, c.at = t.Round(0).UTC(), time.Now()
}

// run stores the floor hourly and at the end.
func (c *clock) run(ctx context.Context) error {
	every := time.NewTicker(saveEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			c.save(ctx)
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveWithin)
			defer cancel()
			c.save(end)
			return nil
		}
	}
}

func (c *clock) save(ctx context.Context) {
	floor := c.floor()
	if floor.IsZero() {
		return
	}
	if err := c.meta.SetMeta(ctx, floorKey, floor.Format(time.RFC3339)); err != nil {
		c.log.Warn("the time that has passed at least is not stored", "error", err)
	}
}
