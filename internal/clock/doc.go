// Package clock returns the uptime of the machine and a time that nobody sets, and recognizes times of a clock that was never set or that
// was ahead. Most small boards have no battery-backed clock. After a boot, the clock of such a board shows 1970, or a time that was read
// from a file. It is wrong until the board has synchronized it over the network. A battery-backed clock may be wrong in either direction.
package clock
