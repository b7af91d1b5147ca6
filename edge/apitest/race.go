//go:build race

package apitest

import "runtime"

// All timers of a synctest bubble share one context of the race detector, which two threads
// spoil that run such timers at once: ThreadSanitizer itself then crashes
// (https://go.dev/issue/78156). With one processor there is one at a time. What happened before
// what is checked all the same.
func init() { runtime.GOMAXPROCS(1) }
