// Package settle returns memory to the system when no pod changes. It has no ticker, so an idle node causes no work.
//
//	pods change --> Run --(no change for a while)--> free memory, collect garbage early
//	                    <--(pods change again)----- let garbage grow
//	Touched --> Run --(idle)--> return the pages of the program's file
//	LimitHeap: limits the heap where memory is smallMachine
package settle
