// Package clock returns the uptime of the machine, and recognizes times of a clock that was never set. A machine
// without a battery-backed clock, such as most small boards, starts in 1970, or at a time that a file has preserved, until
// it synchronizes over the network.
package clock
