// Package accesstest makes certificates for the tests of what is behind a Guard.
package accesstest
