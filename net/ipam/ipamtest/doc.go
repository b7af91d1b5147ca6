// Package ipamtest has the contract of ipam.Store as a test, and a Store in
// memory for tests that need one.
package ipamtest
