// Package host measures the machine. An Identity contains the properties of the machine and is read once.
// A Usage and a Disk contain figures that change and are read on demand. The status of the Node, `islet
// status`, `islet top` and the Summary API use this package.
//
// The package uses gopsutil v3, whose last version is 3.24.5. On Linux, v4 has only one improvement that affects
// islet: it returns an error if it cannot read meminfo. v3 returns zeros, which this package converts to an error.
package host
