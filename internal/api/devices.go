package api

// A Device is one of a resource that containers ask for, or with ?all one of the host that
// no resource has.
type Device struct {
	Resource string      `json:"resource,omitempty"`
	ID       string      `json:"id,omitempty"`    // the same after a reboot
	Nodes    []string    `json:"nodes,omitempty"` // paths on the host, of built-in devices
	State    DeviceState `json:"state"`
	Message  string      `json:"message,omitempty"` // why it cannot be given to a container
	Users    []string    `json:"users,omitempty"`   // containers that have it, as namespace/pod/container
	Shared   int         `json:"shared,omitempty"`  // how many may have it, if several may

	// What a match in the configuration can name, of the first node; with ?all only.
	Subsystem string `json:"subsystem,omitempty"`
	Driver    string `json:"driver,omitempty"`
	Vendor    string `json:"vendor,omitempty"` // of USB, as the next ones
	Product   string `json:"product,omitempty"`
	Serial    string `json:"serial,omitempty"`
	Name      string `json:"name,omitempty"` // by its maker
}

// A DeviceState says what a device is used for.
type DeviceState string

// States of devices.
const (
	DeviceFree      DeviceState = "free"
	DeviceUsed      DeviceState = "used"
	DeviceAway      DeviceState = "away"      // a container has it, and it is not there
	DeviceUnhealthy DeviceState = "unhealthy" // its plugin says so
	DeviceKept      DeviceState = "kept"      // it matches, but is not given to containers
	DeviceNone      DeviceState = "unmatched" // no resource has it
)
