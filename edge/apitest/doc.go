// Package apitest is an API server for tests. It stores pods, nodes, leases and events in memory
// with resource versions, and supports get, list, watch, create, patch and delete. It can be
// disconnected, slowed down, compacted and made to fail.
//
//	kube.Client --in-memory connections--> Faults --> objects + log of changes --> watches
//
// It opens no port and uses the time package's clock, so that tests can run it in a testing/synctest
// bubble. The other features of a real server (validation, admission, garbage collection) are tested in
// test/cluster.
package apitest
