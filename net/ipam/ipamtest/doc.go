// Package ipamtest tests implementations of ipam.Store. It contains an implementation in memory for other tests.
package ipamtest
