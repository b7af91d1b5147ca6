// Package growthtest checks that the CPU time of code grows no faster than the size of its input. It does not depend on the speed of the
// machine or on other programs that run.
//
//	do(n), do(n), ... --shortest CPU time of the thread--> |
//	                                                       |--> ratio: about Factor if linear, Factor² if quadratic
//	do(Factor*n), ... --shortest CPU time of the thread--> |
package growthtest
