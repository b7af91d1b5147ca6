// Package hardware gives containers devices of the host, such as serial ports, cameras and
// GPIO chips, without privileges and without a device plugin: EdgeConfiguration says which
// devices are which resource.
//
//	kernel --uevents--+
//	/dev --inotify----+--> scan /sys and /dev --> match --> units with stable IDs --> Link.Devices
//	                                                             |
//	container starts --Start--> nodes, groups <------------------+
//	a device is back, as another node --> Restart of the container that had it
//
// What is there is read anew from /sys after each message; what the messages say is not
// believed, only that something changed. A device counts as there once its node is, and
// udev, where it runs, has set its owner.
//
// Without devices in the configuration nothing of this exists.
// https://docs.kernel.org/admin-guide/sysfs-rules.html
package hardware
