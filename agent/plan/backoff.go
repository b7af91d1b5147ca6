package plan

import (
	"cmp"
	"time"
)

// The kubelet's figures.
const (
	backoffMin   = 10 * time.Second
	backoffMax   = 5 * time.Minute
	backoffReset = 10 * time.Minute // a container that ran so long did not crash in a loop

	retryMin = time.Second // after a failed operation other than a pull
	retryMax = time.Minute

	sandboxPause = time.Second // a pod whose sandbox dies at once must not take the whole CPU

	// PullFirst and PullMost are the windows of the first wait after a failed pull of an
	// image, and of any: as a kubelet's, but nodes wait for any time within.
	PullFirst, PullMost = backoffMin, backoffMax

	// PullForget is how long after its retry a failed pull is remembered.
	PullForget = 2 * backoffMax

	// PullSettle is how long ErrImagePull is shown before it becomes
	// ImagePullBackOff.
	PullSettle = 2 * time.Second
)

// CrashDelay is how long a container that ended waits before its next start:
// nothing the first time, then 10 s doubling to most; 0 stands for 5 min.
func CrashDelay(streak uint32, most time.Duration) time.Duration {
	if streak == 0 {
		return 0
	}
	return min(backoffMin<<min(streak-1, 5), cmp.Or(most, backoffMax))
}

// RetryDelay is how long to wait after n failures in a row of any operation
// other than a pull.
func RetryDelay(n int) time.Duration { return doubling(retryMin, retryMax, n) }

func doubling(first, most time.Duration, n int) time.Duration {
	return min(first<<min(max(n-1, 0), 6), most)
}

// before reports whether the instant at, which lies delay after something that
// the runtime dated, is still to come. A clock that was set back would make the
// wait long or endless: a wait of more than twice the delay counts as over.
func (p *planner) before(at time.Time, delay time.Duration) bool {
	wait := at.Sub(p.Now)
	return wait > 0 && wait <= 2*delay
}

// streak is the number of crashes in a row that a container following c has.
func streak(c Container) uint32 {
	switch {
	case c.State != Exited:
		return c.Streak // never ran
	case !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= backoffReset:
		return 1
	}
	return c.Streak + 1
}

// NextStart returns when a container that ended may start again, by Input's
// CrashMax.
func NextStart(c Container, most time.Duration) (at time.Time, delay time.Duration) {
	delay = CrashDelay(streak(c)-1, most)
	return c.FinishedAt.Add(delay), delay
}
