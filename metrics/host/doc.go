// Package host measures the machine: what it is (Identity, read once) and how busy it is (Usage,
// Disk; read on demand). Node status, `islet status`, `islet top` and the Summary API use it.
//
// The figures come from gopsutil v3, whose last version is 3.24.5. The improvements of v4 on Linux
// do not affect islet, except for one: v3 returns zeros if it cannot read meminfo, which this
// package converts to an error.
package host
