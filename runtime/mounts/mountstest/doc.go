// Package mountstest runs the tests of a package in a mount namespace of their own, so that no
// mount can remain on the host.
package mountstest
