// Package apitest is an API server for tests: it stores pods, nodes, leases and
// events in memory with resource versions, serves get, list, watch, create, patch and
// delete of them, and can be cut off, slowed down, compacted and made to fail.
//
//	kube.Client --in-memory connections--> Faults --> objects + log of changes --> watches
//
// It has no port and no clock of its own, so that tests can run it within a
// testing/synctest bubble. What a real server does beyond this (validation, admission,
// garbage collection) is tested in test/cluster.
package apitest
