package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
)

const (
	storeAfter = 10 * time.Second // delay before an event is written; a normal event that is sent before is not written
	storeEvery = time.Minute      // minimum interval between writes of events
	// storeSeldom replaces storeEvery while SaveWrites returns true. A power cut loses the events since the last write.
	storeSeldom    = 30 * time.Minute
	combinedPrefix = "(combined from similar events): "
)

// An EventStore stores events across restarts. *store.Store implements it.
type EventStore interface {
	Events(ctx context.Context) ([]store.Event, error)
	// UpdateEvents writes the given events, and removes the events with the given names. It makes all changes or none.
	UpdateEvents(ctx context.Context, put []store.Event, remove []string) error
}

// storedValues contains the values that the store has for a record.
type storedValues struct {
	count, sentCount int32
	isStored         bool
}

// load adds the events that were stored before a restart.
func (e *Events) load(ctx context.Context) error {
	all, err := e.Store.Events(ctx)
	if err != nil {
		return err
	}
	for _, s := range all[:max(0, len(all)-maxEvents)] {
		e.removed = append(e.removed, s.Event.Name)
	}
	for _, s := range all[max(0, len(all)-maxEvents):] {
		r := recordOf(s.Event)
		if strings.HasPrefix(r.message, combinedPrefix) {
			r.key.message = ""
		}
		r.seq, r.sentCount, r.stored = s.Seq, s.Told, storedValues{r.count, s.Told, true}
		e.seq = max(e.seq, s.Seq)
		e.put(r)
	}
	return nil
}

// mustStore reports whether an event should be in the store. This applies to events that the API server does not have yet. It also applies
// to warnings, because users look for them.
func (r *record) mustStore() bool {
	return r.key.kind == v1.EventTypeWarning || r.sentCount != r.count && !r.overBudget
}

// writeChanges writes changes of events to the store until ctx ends, and once more at the end. It is idle while no event occurs.
func (e *Events) writeChanges(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			e.write(context.WithoutCancel(ctx), true)
			return
		case <-e.changed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(storeAfter, e.storeInterval()-time.Since(e.wrote))):
			e.write(ctx, false)
		}
	}
}

// storeInterval returns the current minimum interval between writes.
func (e *Events) storeInterval() time.Duration {
	if e.SaveWrites != nil && e.SaveWrites() {
		return storeSeldom
	}
	return storeEvery
}

// write stores the changed events in one transaction. It omits events that will soon be sent. The last write before the agent ends does not
// omit them.
func (e *Events) write(ctx context.Context, last bool) {
	ctx, cancel := context.WithTimeout(ctx, storeAfter)
	defer cancel()
	e.mu.Lock()
	put, now, remove, later := e.compareStored(time.Now(), last)
	gone := len(e.removed)
	e.mu.Unlock()
	if later {
		select {
		case e.changed <- struct{}{}:
		default:
		}
	}
	if len(put)+len(remove) == 0 {
		return
	}
	e.wrote = time.Now()
	err := e.Store.UpdateEvents(ctx, put, remove)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		if !e.failing {
			e.Log.Warn("events could not be stored and are retried with the next ones", "error", err)
		}
		e.failing = true
		return
	}
	e.failing = false
	for r, s := range now {
		r.stored = s
	}
	e.removed = e.removed[gone:]
}

// compareStored compares the events with the store. It returns the rows to write, the values that the store has after that, and the rows to
// remove. The last result is true if an event was omitted because it may soon be sent. On a node without a cluster, normal events are
// written only when the agent ends, to spare the flash memory. The caller must hold mu.
func (e *Events) compareStored(at time.Time, last bool) (put []store.Event, now map[*record]storedValues, remove []string, later bool) {
	now = map[*record]storedValues{}
	remove = append(remove, e.removed...)
	underway := !last && e.Client != nil && e.beingSent(at)
	for _, r := range e.records {
		want := storedValues{r.count, r.sentCount, r.mustStore()}
		switch {
		case e.Client == nil && !last && r.key.kind == v1.EventTypeNormal:
		case underway && want.isStored && !r.stored.isStored && r.key.kind == v1.EventTypeNormal && at.Sub(r.last) < storeEvery:
			later = true
		case !want.isStored && r.stored.isStored:
			remove = append(remove, r.name)
			now[r] = storedValues{}
		case want.isStored && want != r.stored:
			put = append(put, store.Event{Event: e.toEvent(r), Seq: r.seq, Told: r.sentCount})
			now[r] = want
		}
	}
	return put, now, remove, later
}

// Dropped returns the number of events that were dropped before they were sent, since the start of the agent.
func (e *Events) Dropped() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dropped
}

// drop removes the oldest events if there are more than maxEvents. The caller must hold mu.
func (e *Events) drop() {
	excess := len(e.records) - maxEvents
	if excess <= 0 {
		return
	}
	for _, r := range slices.Clone(e.records[:excess]) {
		e.remove(r)
		if r.stored.isStored {
			e.removed = append(e.removed, r.name)
		}
		if r.sentCount == r.count || r.overBudget || e.Client == nil {
			continue
		}
		e.dropped++
		if e.dropped == 1 {
			e.Log.Warn(fmt.Sprintf("more than %d events wait for the API server: the oldest are dropped", maxEvents))
		}
	}
}
