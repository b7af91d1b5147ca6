package plan

import (
	"cmp"
	"slices"
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

// lostReasons are the runtime's for containers that ended for a reason of the node's own: the
// machine or a shim was gone. Such an end is no crash.
var lostReasons = []string{"Unknown", "ShimLost"}

// lost reports whether a container ended for a reason of the node's own.
func lost(c Container) bool { return c.State == Exited && slices.Contains(lostReasons, c.Reason) }

// streakIn is the number of crashes in a row of a container that follows c in a sandbox. In
// another sandbox than c's it begins anew: what ended the old one, as a restart of the machine,
// ended c.
func streakIn(sandbox string, c Container) uint32 {
	if c.SandboxID != sandbox {
		return 0
	}
	return streak(c)
}

// streak is the number of crashes in a row that a container following c has.
func streak(c Container) uint32 {
	switch {
	case lost(c):
		return c.Streak
	case c.State != Exited:
		return c.Streak // never ran
	case !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= backoffReset:
		return 1
	}
	return c.Streak + 1
}

// NextStart returns when a container that ended may start again, by Input's
// CrashMax. One that the node lost waits for a second only: it may be one that brings its
// shim down.
func NextStart(c Container, most time.Duration) (at time.Time, delay time.Duration) {
	if lost(c) {
		return c.FinishedAt.Add(sandboxPause), sandboxPause
	}
	delay = CrashDelay(streak(c)-1, most)
	return c.FinishedAt.Add(delay), delay
}
