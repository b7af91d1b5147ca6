// Package accesstest creates certificates for tests of handlers that an access.Filter wraps.
package accesstest
