// Package uevent receives the kernel's messages about devices that are added, removed or changed.
//
//	kernel --netlink--> Listen, Watch --> Event
//
// A message only says that something happened. The receiver reads the state from /sys, whose contents are not trusted. Messages of other
// programs are ignored. The package keeps no state, and nothing runs outside Watch.
// https://docs.kernel.org/core-api/kobject.html#uevents
package uevent
