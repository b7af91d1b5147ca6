// Package fusetest mounts a FUSE file system whose server does not respond, for tests of code that must not wait for a volume.
//
//	access to a path below the mount --> blocked, until the server ends --> ENOTCONN
package fusetest
