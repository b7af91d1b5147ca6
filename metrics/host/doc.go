// Package host gives figures of the machine: what it is (Identity, read once)
// and how busy it is (Usage, Disk; read when asked for). Node status, `islet
// status`, `islet top` and the Summary API all draw on it.
package host
