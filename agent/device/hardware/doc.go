// Package hardware provides devices of the host, such as serial ports, cameras and GPIO chips, to unprivileged
// containers without a device plugin. The EdgeConfiguration maps devices to resources.
//
//	kernel --uevents--+
//	/dev --inotify----+--> scan /sys and /dev --> match --> units with stable IDs --> Link.Devices
//	                                                             |
//	container starts --Start--> nodes, groups <------------------+
//	a device is back, as another node --> Restart of the container that had it
//
// Each message triggers a new scan of /sys; its contents are not trusted. A device counts as present when its node
// exists and udev, if it is running, has set the node's owner.
//
// Without devices in the configuration the package creates no state and no goroutine.
// https://docs.kernel.org/admin-guide/sysfs-rules.html
package hardware
