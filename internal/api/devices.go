package api

// A Device is a device of a resource that containers request, or, with ?all, a device of the host
// that belongs to no resource.
type Device struct {
	Resource string      `json:"resource,omitempty"`
	ID       string      `json:"id,omitempty"`    // stable across reboots
	Nodes    []string    `json:"nodes,omitempty"` // paths on the host; only for built-in devices
	State    DeviceState `json:"state"`
	Message  string      `json:"message,omitempty"` // why no container can use it
	Users    []string    `json:"users,omitempty"`   // containers that use it, as namespace/pod/container
	Shared   int         `json:"shared,omitempty"`  // how many containers may use it, if more than one

	// The attributes of the first node that a match in the configuration can use; only with ?all.
	Subsystem string `json:"subsystem,omitempty"`
	Driver    string `json:"driver,omitempty"`
	// Vendor, Product and Serial are those of USB.
	Vendor  string `json:"vendor,omitempty"`
	Product string `json:"product,omitempty"`
	Serial  string `json:"serial,omitempty"`
	Name    string `json:"name,omitempty"` // given by its manufacturer
}

// A DeviceState says how a device is used.
type DeviceState string

// The states of a device.
const (
	DeviceFree      DeviceState = "free"
	DeviceUsed      DeviceState = "used"
	DeviceAway      DeviceState = "away"      // a container uses it, and it is unplugged
	DeviceUnhealthy DeviceState = "unhealthy" // its plugin reports it as unhealthy
	DeviceKept      DeviceState = "kept"      // it matches a resource, but is reserved for the host
	DeviceNone      DeviceState = "unmatched" // it belongs to no resource
)
