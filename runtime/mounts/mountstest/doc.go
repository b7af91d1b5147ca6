// Package mountstest runs the tests of a package in a mount namespace of their own, so that no
// mount is left behind in any case.
package mountstest
