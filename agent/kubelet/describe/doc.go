// Package describe shows how the node fares to those who ask at the local socket: what
// only several of its parts know together. It changes nothing, but for Accept.
//
//	desired, store, events, containers, link, outbox, objects, brake --> Describer --> server
package describe
