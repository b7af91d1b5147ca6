// Package mountstest runs the tests of a package in a new mount namespace, so that no mount remains
// on the host.
package mountstest
