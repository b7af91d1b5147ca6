package link

import (
	"context"
	"time"

	plausible "github.com/islet-edge/islet/internal/clock"
)

const (
	signedKey = "clock-signed"
	// MaxSignedAhead is the maximum time by which a signed time that is used may be ahead of a machine's clock that is set. Otherwise the
	// signer's clock may be wrong, and the node would distrust valid certificates.
	MaxSignedAhead = 180 * 24 * time.Hour
)

// RecordSigned records the time at which a bundle or an index of versions was signed. The caller has verified its signatures with the
// node's keys. On a node without an API server, the time becomes a lower bound of Now, which is stored. It has no effect on other nodes,
// or if it is later than a machine's clock that is set by more than ahead.
func (l *Link) RecordSigned(ctx context.Context, t time.Time, ahead time.Duration) {
	if l.clock.recordSigned(t, ahead) {
		l.clock.save(ctx)
	}
}

// recordSigned reports whether the signed time was recorded.
func (c *clock) recordSigned(t time.Time, ahead time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	machine := c.machine()
	if !c.standalone || !t.After(c.now()) || plausible.IsSet(machine) && t.Sub(machine) > min(ahead, MaxSignedAhead) {
		return false
	}
	c.signed = sinceNow(t)
	return true
}

// signedTime returns the current time according to the signed times. It is zero if they are not used: there is none, the machine's clock is
// later, or it is set and much earlier. So a signed time that is wrong by years has no effect on a machine whose clock is right.
func (c *clock) signedTime(machine time.Time) time.Time {
	t := c.signed.now()
	if !t.After(machine) || plausible.IsSet(machine) && t.Sub(machine) > MaxSignedAhead {
		return time.Time{}
	}
	return t
}
