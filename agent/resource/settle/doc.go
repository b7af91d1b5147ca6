// Package settle gives memory back when the node has come to rest. It has no ticker:
// a node on which nothing changes does nothing.
//
//	pods change --> Run --(quiet for a while)--> free memory, collect garbage early
//	                    <--(pods change again)-- let garbage grow
//	Touched --> Run --(at rest)--> give the program's own pages back
//	Bound: how much garbage there may be where memory is small
package settle
