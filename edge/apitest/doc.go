// Package apitest is an API server for tests. It stores pods, nodes, leases and events in memory with resource versions, and supports
// get, list, watch, create, patch and delete. A test can disconnect it, slow it down, compact it and make it fail.
//
//	kube.Client --in-memory connections--> Faults --> objects + log of changes --> watches
//
// It opens no port and uses the clock of package time, so tests can run it in a testing/synctest bubble. It does not validate, admit or
// garbage-collect objects. Tests in test/cluster use a real server for that.
package apitest
