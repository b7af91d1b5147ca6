// Package idlememory returns memory to the operating system while no pod changes. It uses no ticker, so it causes no work
// on an idle node.
//
//	pods change --> Run --(no change for a while)--> free memory, collect garbage early
//	                    <--(pods change again)----- let garbage grow
//	TaskRan --> Run --(idle)--> return the pages of the program's file
//	LimitHeap: limits the heap where memory is smallMachine
package idlememory
