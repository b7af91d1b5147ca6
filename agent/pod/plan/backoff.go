package plan

import (
	"cmp"
	"slices"
	"time"
)

// The values of a kubelet.
const (
	backoffMin   = 10 * time.Second
	backoffMax   = 5 * time.Minute
	backoffReset = 10 * time.Minute // a container that ran this long is not in a crash loop

	retryMin = time.Second // after a failed operation other than a pull
	retryMax = time.Minute

	sandboxPause = time.Second // so that a pod whose sandbox fails at once does not use the whole CPU

	// PullFirst is the upper bound of the wait after the first failed pull, as in a kubelet. The wait is a random
	// part of the bound.
	PullFirst = backoffMin
	// PullMost is the largest bound of the wait after a failed pull.
	PullMost = backoffMax

	// PullForget is how long the record of a failed pull is kept after the time of its retry.
	PullForget = 2 * backoffMax

	// PullSettle is how long a status shows ErrImagePull before it shows ImagePullBackOff.
	PullSettle = 2 * time.Second
)

// CrashDelay returns how long a container that ended waits before its next start. The first restart does not wait.
// The second waits for 10 s, and each further one twice as long, up to most. A most of 0 means 5 min.
func CrashDelay(streak uint32, most time.Duration) time.Duration {
	if streak == 0 {
		return 0
	}
	return min(backoffMin<<min(streak-1, 5), cmp.Or(most, backoffMax))
}

// RetryDelay returns how long to wait after n consecutive failures of an operation other than a pull.
func RetryDelay(n int) time.Duration { return doubling(retryMin, retryMax, n) }

func doubling(first, most time.Duration, n int) time.Duration {
	return min(first<<min(max(n-1, 0), 6), most)
}

// isFuture reports whether the time at is in the future. at is delay after a time that the runtime reported. A wait
// of more than twice the delay counts as over: the clock was set back, and the wait would be too long.
func (p *planner) isFuture(at time.Time, delay time.Duration) bool {
	wait := at.Sub(p.Now)
	return wait > 0 && wait <= 2*delay
}

// lostReasons are the runtime's reasons for containers that ended because the machine or their shim ended. Such an
// end does not count as a crash.
var lostReasons = []string{"Unknown", "ShimLost"}

// lost reports whether a container ended because the machine or its shim ended.
func lost(c Container) bool { return c.State == Exited && slices.Contains(lostReasons, c.Reason) }

// streakIn returns the number of consecutive crashes for the container that follows c in the sandbox. It is 0 if c
// was in another sandbox, because c then ended with that sandbox, such as at a reboot.
func streakIn(sandbox string, c Container) uint32 {
	if c.SandboxID != sandbox {
		return 0
	}
	return streak(c)
}

// streak returns the number of consecutive crashes for the container that follows c.
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

// NextStart returns when a container that ended may start again, and the delay since its end. most is Input.CrashMax.
// A container that ended with its shim waits for a second, because it may have caused the shim's end.
func NextStart(c Container, most time.Duration) (at time.Time, delay time.Duration) {
	if lost(c) {
		return c.FinishedAt.Add(sandboxPause), sandboxPause
	}
	delay = CrashDelay(streak(c)-1, most)
	return c.FinishedAt.Add(delay), delay
}
