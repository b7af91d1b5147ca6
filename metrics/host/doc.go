// Package host measures the machine. The properties of the machine (Identity) are read once. Figures that change (Usage, Disk) are read on
// demand. The status of the Node, `islet status`, `islet top` and the Summary API use this package.
//
// The package uses gopsutil v3, whose last version is 3.24.5. For islet, v4 would have only one advantage: it returns an error if it cannot
// read meminfo. v3 returns zeros, which this package converts to an error.
package host
