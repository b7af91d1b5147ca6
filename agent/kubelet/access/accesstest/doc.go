// Package accesstest makes certificates for the tests of handlers behind a Filter.
package accesstest
