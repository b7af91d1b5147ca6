// Package fusetest mounts a FUSE file system whose server does not respond, for tests of code that must not wait for a volume.
//
// The tests must run in a mount namespace of their own (see package mountstest). The kernel then removes the mount even if the tests are
// killed.
//
//	access to a path below the mount --> blocked, until the server ends --> ENOTCONN
package fusetest
