package api

// A Device is a device of a resource that containers request, or, with ?all, a device of the host
// that belongs to no resource.
type Device struct {
	Resource string      `json:"resource,omitempty"`
	ID       string      `json:"id,omitempty"`    // stable across reboots
	Nodes    []string    `json:"nodes,omitempty"` // paths on the host; only for built-in devices
	State    DeviceState `json:"state"`
	Message  string      `json:"message,omitempty"` // the reason why no container can use the device
	Users    []string    `json:"users,omitempty"`   // containers that use the device, as namespace/pod/container
	Shared   int         `json:"shared,omitempty"`  // the number of containers that may use the device, if more than one

	// These are the attributes of the first device node, for writing a match in the configuration. They are set only
	// with ?all.
	Subsystem string `json:"subsystem,omitempty"`
	Driver    string `json:"driver,omitempty"`
	// Vendor, Product and Serial are from the USB descriptors.
	Vendor  string `json:"vendor,omitempty"`
	Product string `json:"product,omitempty"`
	Serial  string `json:"serial,omitempty"`
	Name    string `json:"name,omitempty"` // the manufacturer's name for the device
}

// A DeviceState describes whether a device can be used.
type DeviceState string

// These are the states of a device.
const (
	DeviceFree      DeviceState = "free"
	DeviceUsed      DeviceState = "used"
	DeviceAway      DeviceState = "away"      // the device is unplugged, and a container still uses it
	DeviceUnhealthy DeviceState = "unhealthy" // the device's plugin reports the device as unhealthy
	DeviceKept      DeviceState = "kept"      // the device matches a resource, but is reserved for the host
	DeviceNone      DeviceState = "unmatched" // the device belongs to no resource
)
