//go:build race

package apitest

import "runtime"

// On one processor, timers run one at a time. If two threads run timers of a synctest bubble at the same time, they corrupt a context
// that the race detector shares among all timers of the bubble, and ThreadSanitizer crashes (https://go.dev/issue/78156). Races are still
// detected, because the detector compares the order of synchronization, not the time.
func init() { runtime.GOMAXPROCS(1) }
