// Package host measures the machine. Identity describes the machine and is read once. Usage and Disk show
// how busy it is and are read on demand. The status of the Node, `islet status`, `islet top` and the
// Summary API use this package.
//
// The figures come from gopsutil v3. Its last version is 3.24.5. On Linux, v4 has only one improvement that affects
// islet: it returns an error if it cannot read meminfo. v3 returns zeros, and this package converts them to an error.
package host
