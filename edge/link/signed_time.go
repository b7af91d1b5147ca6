package link

import (
	"context"
	"time"

	plausible "github.com/islet-edge/islet/internal/clock"
)

const (
	signedKey = "clock-signed"
	// minSignedAhead is the minimum time by which a signed time must be ahead of the machine's clock to be used. A smaller difference does
	// not matter for certificates. Without this minimum, every node whose clock is seconds behind the signer's clock would store the time
	// each hour.
	minSignedAhead = time.Minute
)

// RecordSigned records the time at which a bundle was signed. The caller has verified its signatures with the node's keys, and is about to
// use the bundle for the first time. On a node without an API server, the time becomes a lower bound of Now, which is stored. It has no
// effect on other nodes, or if it cannot be used now: see isUsable.
func (l *Link) RecordSigned(ctx context.Context, t time.Time) {
	if l.clock.recordSigned(t) {
		l.clock.save(ctx)
	}
}

// IsSynced reports whether the kernel's clock is synchronized.
func (l *Link) IsSynced() bool { return l.clock.isSynced() }

// recordSigned records the signed time if the time can be used. It returns true if it has recorded the time.
func (c *clock) recordSigned(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.standalone || !t.After(c.now()) || !c.isUsable(t, c.machine()) {
		return false
	}
	c.signed = sinceNow(t)
	return true
}

// signedTime returns the current time according to the signed times. It is zero if there is none that can be used now.
func (c *clock) signedTime(machine time.Time) time.Time {
	if t := c.signed.now(); c.isUsable(t, machine) {
		return t
	}
	return time.Time{}
}

// isUsable reports whether a signed time may replace the machine's time. It may not if the kernel's clock is synchronized, or if the
// machine's clock is set and much earlier: see plausible.IsPlausible. So a wrong signer has little effect on a machine whose clock is
// set, and none on one whose clock is synchronized.
func (c *clock) isUsable(t, machine time.Time) bool {
	return t.Sub(machine) > minSignedAhead && plausible.IsPlausible(t, machine) && !c.isSynced()
}
