//go:build race

package apitest

import "runtime"

// On one processor, timers run one at a time. Two threads that run timers of a synctest bubble at once
// corrupt the context that all timers of the bubble share in the race detector, and ThreadSanitizer crashes
// (https://go.dev/issue/78156). Races are still detected: the detector compares the order of
// synchronization, not the time.
func init() { runtime.GOMAXPROCS(1) }
