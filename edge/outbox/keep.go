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
	storeAfter = 10 * time.Second // how old an event gets in memory alone; one that was told meanwhile is not written
	storeEvery = time.Minute      // how often events are written, at most
	// storeSeldom is the same while the disk is spared: a power cut loses what is younger.
	storeSeldom = 30 * time.Minute
	combined    = "(combined from similar events): "
)

// An EventStore keeps events over a restart. *store.Store is one.
type EventStore interface {
	Events(ctx context.Context) ([]store.Event, error)
	// UpdateEvents writes and removes, by name, all or nothing.
	UpdateEvents(ctx context.Context, put []store.Event, remove []string) error
}

// stored is what the store has of a record.
type stored struct {
	count, told int32
	there       bool
}

// load takes over the events of the last run.
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
		if strings.HasPrefix(r.message, combined) {
			r.key.message = ""
		}
		r.seq, r.told, r.stored = s.Seq, s.Told, stored{r.count, s.Told, true}
		e.seq = max(e.seq, s.Seq)
		e.put(r)
	}
	return nil
}

// lasting says that an event is to outlive the agent: the API server does not know it, or
// it is a warning, which a person looks for.
func (r *record) lasting() bool {
	return r.key.kind == v1.EventTypeWarning || r.told != r.count && !r.mute
}

// keep writes what changed until ctx ends, and then once more. While nothing happens it
// waits.
func (e *Events) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			e.write(context.WithoutCancel(ctx), true)
			return
		case <-e.changed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(storeAfter, e.every()-time.Since(e.wrote))):
			e.write(ctx, false)
		}
	}
}

// every is how often events are written now, at most.
func (e *Events) every() time.Duration {
	if e.Spare != nil && e.Spare() {
		return storeSeldom
	}
	return storeEvery
}

// write stores the difference, in one transaction: without what will be told soon, unless
// this is the last time.
func (e *Events) write(ctx context.Context, last bool) {
	ctx, cancel := context.WithTimeout(ctx, storeAfter)
	defer cancel()
	e.mu.Lock()
	put, now, remove, later := e.difference(time.Now(), last)
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
			e.Log.Warn("events could not be stored, trying again with the next", "error", err)
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

// difference gives what to write and to remove, and what the store has of each record
// then. later says that something was left out that may be told soon. What went well on a
// node that stands alone is written when the agent ends, and costs its flash nothing
// before. The caller holds mu.
func (e *Events) difference(at time.Time, last bool) (put []store.Event, now map[*record]stored, remove []string, later bool) {
	now = map[*record]stored{}
	remove = append(remove, e.removed...)
	underway := !last && e.Client != nil && e.underway(at)
	for _, r := range e.kept {
		want := stored{r.count, r.told, r.lasting()}
		switch {
		case e.Client == nil && !last && r.key.kind == v1.EventTypeNormal:
		case underway && want.there && !r.stored.there && r.key.kind == v1.EventTypeNormal && at.Sub(r.last) < storeEvery:
			later = true
		case !want.there && r.stored.there:
			remove = append(remove, r.name)
			now[r] = stored{}
		case want.there && want != r.stored:
			put = append(put, store.Event{Event: e.event(r), Seq: r.seq, Told: r.told})
			now[r] = want
		}
	}
	return put, now, remove, later
}

// Dropped is how many events were lost that nobody was told of, since the agent started.
func (e *Events) Dropped() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dropped
}

// drop forgets the oldest events beyond the bound. The caller holds mu.
func (e *Events) drop() {
	over := len(e.kept) - maxEvents
	if over <= 0 {
		return
	}
	for _, r := range slices.Clone(e.kept[:over]) {
		e.remove(r)
		if r.stored.there {
			e.removed = append(e.removed, r.name)
		}
		if r.told == r.count || r.mute || e.Client == nil {
			continue
		}
		if e.dropped++; e.dropped == 1 {
			e.Log.Warn(fmt.Sprintf("more than %d events wait for the API server: the oldest are dropped", maxEvents))
		}
	}
}
