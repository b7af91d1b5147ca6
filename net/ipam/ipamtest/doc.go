// Package ipamtest tests implementations of ipam.Store, and has an implementation in memory for
// other tests.
package ipamtest
