// Package resource keeps disk and memory available on the node. It removes unused data, limits flash wear, evicts
// pods under pressure, and reports out-of-memory kills.
//
//	garbage: images and dead containers      flash: bytes written, and a budget for them
//	oom: kernel out-of-memory kills          eviction: node-pressure eviction
//	usage: measurements by pod               idlememory: returns memory while idle
package resource
