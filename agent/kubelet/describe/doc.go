// Package describe collects the status for the local socket from several parts of the node. Only Accept and TakeOver
// change anything.
//
//	desired, store, events, containers, link, outbox, objects, brake --> Describer --> server
package describe
