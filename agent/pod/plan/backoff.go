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

	// PullFirst is the bound of the first wait after a failed pull, as a kubelet's. The wait is a random part of it.
	PullFirst = backoffMin
	// PullMost is the bound of any wait after a failed pull.
	PullMost = backoffMax

	// PullForget is how long after its retry the record of a failed pull is kept.
	PullForget = 2 * backoffMax

	// PullSettle is how long the status has ErrImagePull before it has ImagePullBackOff.
	PullSettle = 2 * time.Second
)

// CrashDelay returns how long a container that ended waits before its next start: not at all the first time, then 10 s,
// doubled each time up to most; 0 stands for 5 min.
func CrashDelay(streak uint32, most time.Duration) time.Duration {
	if streak == 0 {
		return 0
	}
	return min(backoffMin<<min(streak-1, 5), cmp.Or(most, backoffMax))
}

// RetryDelay returns how long to wait after n failures in a row of an operation that is not a pull.
func RetryDelay(n int) time.Duration { return doubling(retryMin, retryMax, n) }

func doubling(first, most time.Duration, n int) time.Duration {
	return min(first<<min(max(n-1, 0), 6), most)
}

// before reports whether the time at is in the future. at is delay after a time from the runtime. If the clock was set back
// since, the wait would be too long: one of more than twice the delay counts as over.
func (p *planner) before(at time.Time, delay time.Duration) bool {
	wait := at.Sub(p.Now)
	return wait > 0 && wait <= 2*delay
}

// lostReasons are the runtime's reasons for containers that ended with the machine or their shim. Such an end is no crash.
var lostReasons = []string{"Unknown", "ShimLost"}

// lost reports whether a container ended with the machine or its shim.
func lost(c Container) bool { return c.State == Exited && slices.Contains(lostReasons, c.Reason) }

// streakIn returns the number of crashes in a row for the container that follows c in a sandbox. In another sandbox than
// c's it is 0: c ended with its sandbox, as at a restart of the machine.
func streakIn(sandbox string, c Container) uint32 {
	if c.SandboxID != sandbox {
		return 0
	}
	return streak(c)
}

// streak returns the number of crashes in a row for the container that follows c.
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

// NextStart returns when a container that ended may start again, and how long after its end that is. most is Input's
// CrashMax. A container that ended with its shim waits for a second only: it may be the cause.
func NextStart(c Container, most time.Duration) (at time.Time, delay time.Duration) {
	if lost(c) {
		return c.FinishedAt.Add(sandboxPause), sandboxPause
	}
	delay = CrashDelay(streak(c)-1, most)
	return c.FinishedAt.Add(delay), delay
}
