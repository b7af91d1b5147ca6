package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	floorKey   = "clock-floor"
	saveEvery  = time.Hour
	saveWithin = 5 * time.Second // timeout for writing the lower bound after the end of ctx

	// maxAhead is the difference up to which the Date of an answer is accepted immediately. A Date that is later than Now by more than
	// maxAhead must be confirmed. The same applies to a Date that is earlier than the floor by more than maxAhead. A Date is confirmed when
	// several answers agree, which must come over separate connections and at different times.
	maxAhead        = 10 * time.Minute
	maxDisagreement = time.Minute // maximum difference between answers that agree
	agreeingAnswers = 3
	askAgain        = 8 * time.Second // interval between requests for the server's time
)

// A clock maintains a lower bound of the current time.
//
//	Date of an answer --small step, or confirmed--> proven, stored
//	                  --large step, either way----> claimed --answers agree-----> proven
//	                                                        '--answers disagree-> dropped
//	NotBefore of a certificate --> hint --a server's certificate would have expired--> dropped
//	without a server: time of a bundle's signature --used, clock not synchronized--> signed, stored
//
//	Now = the latest of machine, proven, hint, signed
type clock struct {
	meta       Meta
	machine    func() time.Time
	isSynced   func() bool // reports whether the kernel's clock is synchronized
	standalone bool        // no API server can prove the time
	log        *slog.Logger

	storing sync.Mutex // locked while known times are read and stored, so that the newest one is stored last; locked before mu

	mu            sync.Mutex
	proven        startTime
	signed        startTime // the latest time of a signature; only on a node without an API server
	hint          startTime // the latest NotBefore of a certificate; never stored, and dropped when a server's certificate contradicts it
	wrongHint     time.Time // a hint that was wrong; hints of this time or later are ignored
	claimedTime   startTime // a Date that is not confirmed yet
	agreed        int
	claimedSignal chan struct{} // capacity 1; a value means that claimed was set
	refused       string        // the last rejected Date, with the reason
}

// A startTime is a point of the wall clock, with the monotonic time at which it was the current time. The current time can be computed from
// both.
type startTime struct{ t, at time.Time }

func (s startTime) now() time.Time {
	if s.t.IsZero() {
		return time.Time{}
	}
	return s.t.Add(time.Since(s.at))
}

func sinceNow(t time.Time) startTime { return startTime{t.Round(0).UTC(), time.Now()} }

func newClock(ctx context.Context, cfg Config) (*clock, error) {
	c := &clock{
		meta: cfg.Meta, machine: cfg.Clock, isSynced: cfg.IsClockSynced, standalone: cfg.isStandalone(), log: cfg.Log,
		claimedSignal: make(chan struct{}, 1),
	}
	if c.machine == nil {
		c.machine = time.Now
	}
	if c.isSynced == nil {
		c.isSynced = func() bool { return false }
	}
	err := c.load(ctx, floorKey, &c.proven)
	if err == nil && c.standalone {
		err = c.load(ctx, signedKey, &c.signed)
	}
	return c, err
}

// load reads the time that is stored under the key into the variable target. If no time is stored, the target does not change.
func (c *clock) load(ctx context.Context, key string, target *startTime) error {
	text, found, err := c.meta.Meta(ctx, key)
	if err != nil {
		return fmt.Errorf("read the stored lower bound of the time: %w", err)
	}
	if found && text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			c.log.Warn("the stored lower bound of the time cannot be parsed and is ignored", "error", err)
		} else {
			*target = sinceNow(t)
		}
	}
	return nil
}

// Now returns the latest of the machine's time, the lower bound, the hint and the signed time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *clock) now() time.Time {
	machine := c.machine()
	now := machine
	for _, t := range []time.Time{c.proven.now(), c.hint.now(), c.signedTime(machine)} {
		if t.After(now) {
			now = t
		}
	}
	return now
}

// recordHint records the NotBefore of a certificate of the cluster's CA as a hint.
func (c *clock) recordHint(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now()) && (c.wrongHint.IsZero() || t.Before(c.wrongHint)) {
		c.hint = sinceNow(t)
	}
}

// checkHint checks the hint with a server's certificate that is valid from begins to ends. If the certificate has expired only because of
// the hint, the hint is wrong. Then the hint is dropped, and the result is true.
func (c *clock) checkHint(begins, ends time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	without := c.machine()
	if t := c.proven.now(); t.After(without) {
		without = t
	}
	if c.hint.t.IsZero() || !c.now().After(ends) || without.After(ends) {
		return false
	}
	c.log.Warn("a certificate begins at an impossible time, which is ignored", "claimed", c.hint.t)
	c.wrongHint = c.hint.t
	c.hint = startTime{}
	if begins.After(without) {
		c.hint = sinceNow(begins)
	}
	return true
}

// evaluateDate evaluates the Date of an answer. A Date after the NotAfter of the server's certificate is rejected. A Date that differs much
// from the known time must be confirmed by answers over new connections.
func (c *clock) evaluateDate(date, until time.Time, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, proven := c.now(), c.proven.now()
	switch {
	case date.After(until):
		c.rejectDate(date, "the server's own certificate expired at "+until.UTC().Format(time.RFC3339))
		return
	case !date.After(now.Add(maxAhead)) && !date.Before(proven.Add(-maxAhead)):
		c.claimedTime, c.agreed = startTime{}, 0
		if date.After(proven) {
			c.proven = sinceNow(date)
		}
		return
	}
	off := date.Sub(c.claimedTime.now()).Abs()
	if c.claimedTime.t.IsZero() || off > maxDisagreement {
		c.claimedTime, c.agreed = sinceNow(date), 1
		signalChannel(c.claimedSignal)
		return
	}
	if !fresh {
		return
	}
	c.agreed++
	if c.agreed < agreeingAnswers {
		return
	}
	c.acceptDate(date, proven)
}

// acceptDate accepts a Date that several answers agree on, even if it is earlier than the lower bound. A wrong Date does no lasting harm,
// because later answers can correct it in the same way. Until then, the node even uses a certificate that seems to have expired.
func (c *clock) acceptDate(date, proven time.Time) {
	if date.Before(proven) {
		c.log.Warn("the lower bound of the time was wrong, because several answers of the API server agree on an earlier time",
			"was", proven, "now", date.UTC())
	} else {
		c.log.Info("this machine's clock is behind: the API server's time is used", "server", date.UTC(), "machine", c.machine().UTC())
	}
	c.proven, c.claimedTime, c.agreed = sinceNow(date), startTime{}, 0
}

func (c *clock) rejectDate(date time.Time, why string) {
	c.refused = date.UTC().Format(time.RFC3339) + ": " + why
}

// askAgainAfter returns the time until the next request for the server's time, or 0 if none is needed.
func (c *clock) askAgainAfter() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claimedTime.t.IsZero() || c.agreed >= agreeingAnswers {
		return 0
	}
	return askAgain
}

// latestTime returns the latest known time, including a Date that is not confirmed. Callers may use it to suspect that a certificate has
// expired, but not to reject the certificate.
func (c *clock) latestTime() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if t := c.claimedTime.now(); t.After(now) {
		return t
	}
	return now
}

// run stores the lower bound every hour and when ctx ends.
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

// save stores the proven time. On a node without an API server, save stores the signed time instead, and nothing while the signed time is
// not used.
func (c *clock) save(ctx context.Context) {
	c.storing.Lock()
	defer c.storing.Unlock()
	c.mu.Lock()
	key, t := floorKey, c.proven.now()
	if c.standalone {
		key, t = signedKey, c.signedTime(c.machine())
	}
	c.mu.Unlock()
	if t.IsZero() {
		return
	}
	if err := c.meta.SetMeta(ctx, key, t.Format(time.RFC3339)); err != nil {
		c.log.Warn("the lower bound of the time is not stored", "error", err)
	}
}

const (
	lookAtClock = 5 * time.Second
	clockStep   = 30 * time.Second
)

// sleep waits until d has passed, a signal arrives, or the machine's clock was set. After a change of the clock, a request that failed
// because of a wrong time may succeed. sleep returns false if ctx has ended.
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

// Times contains the times from which the node derives the current time.
type Times struct {
	Now     time.Time // the time for verifying certificates
	Machine time.Time
	// The proven lower bound, the hint of a certificate, the signed time of a bundle, and a Date of the API server that is not confirmed
	// yet. A missing time is zero, also a signed time that is not used.
	Floor, Hint, Signed, Claimed time.Time
	Answers                      int    // number of answers that agree on Claimed
	Refused                      string // the last rejected time of a server, with the reason
}

func (c *clock) knownTimes() Times {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Times{
		Now: c.now(), Machine: c.machine(), Floor: c.proven.now(), Hint: c.hint.now(), Signed: c.signedTime(c.machine()),
		Claimed: c.claimedTime.now(), Answers: c.agreed, Refused: c.refused,
	}
}

// reset drops all known times. Only the machine's clock is used after that. It also removes the signed time that a node of a cluster has
// stored before it joined.
func (c *clock) reset(ctx context.Context) error {
	c.storing.Lock()
	defer c.storing.Unlock()
	c.mu.Lock()
	c.proven, c.hint, c.claimedTime, c.wrongHint, c.agreed, c.refused = startTime{}, startTime{}, startTime{}, time.Time{}, 0, ""
	c.signed = startTime{}
	c.mu.Unlock()
	if err := errors.Join(c.meta.SetMeta(ctx, floorKey, ""), c.meta.SetMeta(ctx, signedKey, "")); err != nil {
		return fmt.Errorf("remove the stored time: %w", err)
	}
	return nil
}
