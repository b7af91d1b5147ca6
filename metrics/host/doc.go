// Package host gives figures of the machine: what it is (Identity, read once)
// and how busy it is (Usage, Disk; read when asked for). Node status, `islet
// status`, `islet top` and the Summary API all draw on it.
//
// The figures come from gopsutil v3, whose last version is 3.24.5. What v4 reads better on
// Linux does not concern islet, but for one thing: v3 returns zeros for a meminfo that it
// cannot read. This package makes that an error.
package host
