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

	// A Date that is further ahead of what is known than ahead, or so far behind the
	// floor, is provisional until so many answers agree, on connections of their own and
	// some time apart.
	ahead     = 10 * time.Minute
	agreement = time.Minute // by which answers that agree may differ
	answers   = 3
	askAgain  = 8 * time.Second // for the next one
)

// A clock knows a time that has certainly passed.
//
//	Date of an answer --small step, or confirmed--> proven, stored
//	                  --large step, either way----> claimed --answers agree--> proven
//	                                                        '--they do not---> forgotten
//	NotBefore of a certificate --> hint --a server's certificate was over by then--> forgotten
//
//	Now = the latest of machine, proven, hint
type clock struct {
	meta    Meta
	machine func() time.Time
	log     *slog.Logger

	mu      sync.Mutex
	proven  since
	hint    since     // what certificates say; never stored, dropped when it does not fit
	wrong   time.Time // a hint that was refuted; others from then on are too
	claimed since     // a large step, by answers so far
	agreed  int
	doubt   chan struct{} // capacity 1: there is a claim
	refused string        // the last Date that was not believed, with the reason
}

// since is a time and when it was known, by the machine's monotonic reading.
type since struct{ t, at time.Time }

func (s since) now() time.Time {
	if s.t.IsZero() {
		return time.Time{}
	}
	return s.t.Add(time.Since(s.at))
}

func from(t time.Time) since { return since{t.Round(0).UTC(), time.Now()} }

func newClock(ctx context.Context, cfg Config) (*clock, error) {
	c := &clock{meta: cfg.Meta, machine: cfg.Clock, log: cfg.Log, doubt: make(chan struct{}, 1)}
	if c.machine == nil {
		c.machine = time.Now
	}
	text, found, err := c.meta.Meta(ctx, floorKey)
	if err != nil {
		return nil, fmt.Errorf("read the time that has passed at least: %w", err)
	}
	if found && text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			c.log.Warn("the stored time is not one: it is ignored", "error", err)
		} else {
			c.proven = from(t)
		}
	}
	return c, nil
}

// Now is the machine's time, or what is known to have passed if that is later.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *clock) now() time.Time {
	now := c.machine()
	for _, s := range []since{c.proven, c.hint} {
		if t := s.now(); t.After(now) {
			now = t
		}
	}
	return now
}

// suggest takes when a certificate of the cluster's CA began to be valid.
func (c *clock) suggest(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now()) && (c.wrong.IsZero() || t.Before(c.wrong)) {
		c.hint = from(t)
	}
}

// contradict takes the life of a server's certificate that is over by Now. When it is
// good by all but what other certificates suggested, it is they that are wrong. It
// reports whether that was so.
func (c *clock) contradict(begins, ends time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	without := c.machine()
	if t := c.proven.now(); t.After(without) {
		without = t
	}
	if c.hint.t.IsZero() || !c.now().After(ends) || without.After(ends) {
		return false
	}
	c.log.Warn("a certificate claims to be from a time that cannot be: its time no longer counts", "claimed", c.hint.t)
	c.wrong = c.hint.t
	if c.hint = (since{}); begins.After(without) {
		c.hint = from(begins)
	}
	return true
}

// answered takes the Date of an answer, and when the certificate of the server that sent
// it ends. Fresh says that it came over a connection of its own.
func (c *clock) answered(date, until time.Time, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, proven := c.now(), c.proven.now()
	switch {
	case date.After(until):
		c.refuse(date, "the server's own certificate is over at "+until.UTC().Format(time.RFC3339))
		return
	case !date.After(now.Add(ahead)) && !date.Before(proven.Add(-ahead)):
		c.claimed, c.agreed = since{}, 0
		if date.After(proven) {
			c.proven = from(date)
		}
		return
	}
	if off := date.Sub(c.claimed.now()).Abs(); c.claimed.t.IsZero() || off > agreement {
		c.claimed, c.agreed = from(date), 1
		poke(c.doubt)
		return
	}
	if !fresh {
		return
	}
	if c.agreed++; c.agreed < answers {
		return
	}
	c.settle(date, proven)
}

// settle takes a step that answers agree on, either way. One that is wrong is taken back
// the same way, and does no harm meanwhile: a certificate that is over by then is still
// tried.
func (c *clock) settle(date, proven time.Time) {
	if date.Before(proven) {
		c.log.Warn("the time that has passed at least was wrong: the API server says so repeatedly", "was", proven, "now", date.UTC())
	} else {
		c.log.Info("this machine's clock is behind; the API server's time counts", "server", date.UTC(), "machine", c.machine().UTC())
	}
	c.proven, c.claimed, c.agreed = from(date), since{}, 0
}

func (c *clock) refuse(date time.Time, why string) {
	c.refused = date.UTC().Format(time.RFC3339) + ": " + why
}

// unsure is how long to wait before the server should be asked for its time once more; 0:
// it need not be.
func (c *clock) unsure() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claimed.t.IsZero() || c.agreed >= answers {
		return 0
	}
	return askAgain
}

// later is the latest time that anybody claims: enough to suspect a certificate, not to
// distrust it.
func (c *clock) later() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if t := c.claimed.now(); t.After(now) {
		return t
	}
	return now
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
	c.mu.Lock()
	floor := c.proven.now()
	c.mu.Unlock()
	if floor.IsZero() {
		return
	}
	if err := c.meta.SetMeta(ctx, floorKey, floor.Format(time.RFC3339)); err != nil {
		c.log.Warn("the time that has passed at least is not stored", "error", err)
	}
}

const (
	lookAtClock = 5 * time.Second
	clockStep   = 30 * time.Second
)

// sleep waits for a time, a signal, the end of ctx, which is false, or until somebody sets
// the machine's clock: what failed because of the time may then succeed.
func (c *clock) sleep(ctx context.Context, d time.Duration, wake ...<-chan struct{}) bool {
	began, machine := time.Now(), c.machine().Round(0)
	end := time.NewTimer(d)
	defer end.Stop()
	look := time.NewTicker(lookAtClock)
	defer look.Stop()
	wake = append(wake, nil, nil, nil)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-end.C:
			return true
		case <-wake[0]:
			return true
		case <-wake[1]:
			return true
		case <-wake[2]:
			return true
		case <-look.C:
			if step := c.machine().Round(0).Sub(machine) - time.Since(began); step.Abs() > clockStep {
				return true
			}
		}
	}
}

// Times is what the node knows of the time.
type Times struct {
	Now     time.Time // by which certificates are judged
	Machine time.Time
	// Floor has passed for certain; Hint is what certificates suggest; Claimed is what the
	// API server says, not believed yet. Each is zero when there is none.
	Floor, Hint, Claimed time.Time
	Answers              int    // that agree on Claimed
	Refused              string // the last time of a server that was not believed, and why
}

func (c *clock) times() Times {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Times{
		Now: c.now(), Machine: c.machine(), Floor: c.proven.now(), Hint: c.hint.now(), Claimed: c.claimed.now(),
		Answers: c.agreed, Refused: c.refused,
	}
}

// reset forgets all but the machine's clock.
func (c *clock) reset(ctx context.Context) error {
	c.mu.Lock()
	c.proven, c.hint, c.claimed, c.wrong, c.agreed, c.refused = since{}, since{}, since{}, time.Time{}, 0, ""
	c.mu.Unlock()
	if err := c.meta.SetMeta(ctx, floorKey, ""); err != nil {
		return fmt.Errorf("forget the stored time: %w", err)
	}
	return nil
}
