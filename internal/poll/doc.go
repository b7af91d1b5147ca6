// Package poll requests documents of servers at intervals.
//
//	           .---------------- wait: Pace ---------------.
//	           v                                           |
//	Run --> round --request with Validators--> server      |
//	           |                                 |         |
//	           '--<-- 304, or another document --+---------'
//
// Intervals differ at random, so that many nodes do not send their requests at the same time. After a failure, the waits grow from
// the first retry to the interval.
package poll
