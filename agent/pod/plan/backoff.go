package plan

import (
	"cmp"
	"slices"
	"time"
)

// These are the values of a kubelet.
const (
	backoffMin   = 10 * time.Second
	backoffMax   = 5 * time.Minute
	backoffReset = 10 * time.Minute // after running for this time, a container is not in a crash loop

	retryMin = time.Second // after a failed operation other than a pull
	retryMax = time.Minute

	// sandboxRetryMax is the maximum delay after a failed attempt to run a sandbox. The attempts fail while the pod
	// network is missing, for example.
	sandboxRetryMax = 10 * time.Second

	sandboxPause = time.Second // prevents a pod whose sandbox fails at once from using the whole CPU

	// PullFirst is the maximum delay after the first failed pull, as in a kubelet. The actual delay is a random time
	// up to this maximum.
	PullFirst = backoffMin
	// PullMost is the maximum delay after any number of failed pulls.
	PullMost = backoffMax

	// PullForget is the time for which the record of a failed pull is kept after the next attempt was due.
	PullForget = 2 * backoffMax

	// PullSettle is the time for which a status shows ErrImagePull before it shows ImagePullBackOff.
	PullSettle = 2 * time.Second
)

// CrashDelay returns the delay before the next start of a container that has ended. The first restart has no delay. The
// delay of the second restart is 10 s, and doubles with each further restart. The parameter most is the maximum delay;
// 0 means 5 min.
func CrashDelay(streak uint32, most time.Duration) time.Duration {
	if streak == 0 {
		return 0
	}
	return min(backoffMin<<min(streak-1, 5), cmp.Or(most, backoffMax))
}

// RetryDelay returns the delay after the given number of consecutive failures of an operation.
// Pulls have their own delays.
func RetryDelay(n int) time.Duration { return doubledDelay(retryMin, retryMax, n) }

// SandboxRetryDelay returns the delay after the given number of consecutive failures to run a sandbox. The
// usual cause is that the pod network is missing until another pod of the node has set it up, so the delay is
// short.
func SandboxRetryDelay(n int) time.Duration { return doubledDelay(retryMin, sandboxRetryMax, n) }

func doubledDelay(first, most time.Duration, n int) time.Duration {
	return min(first<<min(max(n-1, 0), 6), most)
}

// isFuture reports whether a time is in the future. The caller has computed this time by adding the delay to
// a time that the runtime reported. If the time is more than twice the delay in the future, the clock was set
// back, and isFuture returns false.
func (p *planner) isFuture(at time.Time, delay time.Duration) bool {
	wait := at.Sub(p.Now)
	return wait > 0 && wait <= 2*delay
}

// lostReasons contains the runtime's reasons for containers that ended because the machine or their shim ended. Such
// an end is not counted as a crash.
var lostReasons = []string{"Unknown", "ShimLost"}

// endedWithShim reports whether a container ended because the machine or its shim ended.
func endedWithShim(c Container) bool {
	return c.State == Exited && slices.Contains(lostReasons, c.Reason)
}

// streakIn returns the number of consecutive crashes for the container that follows c in the sandbox. It is 0 if c
// was in another sandbox: c then ended together with that sandbox, for example at a reboot.
func streakIn(sandbox string, c Container) uint32 {
	if c.SandboxID != sandbox {
		return 0
	}
	return nextStreak(c)
}

// nextStreak returns the number of consecutive crashes for the container that follows c.
func nextStreak(c Container) uint32 {
	switch {
	case endedWithShim(c):
		return c.Streak
	case c.State != Exited:
		return c.Streak // never ran
	case !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= backoffReset:
		return 1
	}
	return c.Streak + 1
}

// NextStart returns the time at which a container that has ended may start again, and the delay between its end and
// this time. The parameter most is the maximum delay, as in CrashDelay. A container that ended with its shim is
// delayed by a second, because it may have caused the shim's end.
func NextStart(c Container, most time.Duration) (at time.Time, delay time.Duration) {
	if endedWithShim(c) {
		return c.FinishedAt.Add(sandboxPause), sandboxPause
	}
	delay = CrashDelay(nextStreak(c)-1, most)
	return c.FinishedAt.Add(delay), delay
}
