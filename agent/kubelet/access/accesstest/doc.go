// Package accesstest creates certificates for tests of handlers behind an access.Filter.
package accesstest
