// Package clock returns the uptime of the machine, and recognizes times of a clock that was never set. Most small boards
// have no battery-backed clock. After a boot their clock shows 1970, or a time that was read from a file, until it is
// synchronized over the network.
package clock
