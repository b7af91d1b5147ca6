package node

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// listDevices returns one entry for each device that containers can request, with the users of the device.
func (n *Node) listDevices(r *http.Request) (any, error) {
	if n.Devices == nil {
		return []api.Device{}, nil
	}
	return n.Devices(r.URL.Query().Has("all"))
}
