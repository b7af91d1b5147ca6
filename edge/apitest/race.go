//go:build race

package apitest

import "runtime"

// This is a workaround for a crash of the race detector (https://go.dev/issue/78156). The detector shares one context among all timers of a
// synctest bubble, and two threads that run timers at the same time corrupt it. With one processor, timers run one after the other. Races
// are still detected, because the detector compares the order of synchronization, not the time.
func init() { runtime.GOMAXPROCS(1) }
