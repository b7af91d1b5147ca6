package growthtest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Factor is the ratio of the two sizes that Linear compares.
	Factor = 8
	// maxRatio is the largest ratio of the CPU times. It is far above Factor, because caches and the garbage collector make large inputs
	// slower, and far below Factor².
	maxRatio = 4 * Factor
	attempts = 3
	// shortest is the least CPU time that is compared. Caches and the garbage collector have too much influence on shorter times.
	shortest = 4 * time.Millisecond
)

// Linear calls do with the size n and with Factor*n, and reports an error if the CPU time grows like the square of the size. The
// work has to be done on the goroutine that calls do.
func Linear(t testing.TB, n int, do func(n int)) {
	t.Helper()
	small, large := max(shortestTime(t, n, do), shortest), shortestTime(t, Factor*n, do)
	if large > maxRatio*small {
		t.Errorf("size %d takes %v of CPU time, size %d takes %v", n, small, Factor*n, large)
	}
}

func shortestTime(t testing.TB, n int, do func(n int)) time.Duration {
	runtime.LockOSThread() // so that the CPU time does not contain other goroutines
	defer runtime.UnlockOSThread()
	least := time.Duration(0)
	for i := range attempts {
		began := ThreadTime(t)
		do(n)
		if took := ThreadTime(t) - began; i == 0 || took < least {
			least = took
		}
	}
	return least
}

// ThreadTime returns the CPU time of this thread.
func ThreadTime(t testing.TB) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
