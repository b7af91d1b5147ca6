// Package medium finds sticks with a certain label, offers their bundles to the node, and writes the result to the stick.
//
//	kernel --uevents--> names of block devices --+
//	start: scan of /sys/class/block -------------+--> Medium: one device at a time
//	                                                    |  requests, with a time limit            |
//	                                                    v                                         v
//	                          helper: a child process that reads the label,            Bundles: the newest bundle is tried
//	                          mounts the file system for itself alone,                   (agent/change/bundle)
//	                          and reads or writes files
//
// Only the helper opens the device, because a call to a defective stick can hang in the kernel, and then not even SIGKILL ends its process.
// If the helper does not answer in time, the agent kills and abandons it. So a stick delays neither the agent's loops nor its end.
//
// The mount belongs to no mount namespace (fsmount(2)). Other processes cannot see it, and it ends with the helper.
//
// The device is hostile: it may return other bytes at each read. So the helper passes on only bytes, and package agent/change/bundle
// verifies the bytes that it uses.
//
// Without a label in the configuration, nothing runs.
package medium
