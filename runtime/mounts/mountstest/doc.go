// Package mountstest runs the tests of a package in a mount namespace of their own, so that no
// mount is left whatever happens.
package mountstest
