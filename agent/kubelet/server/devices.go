package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// listDevices returns one entry for each device that containers can request, with the users of the device.
func (s *Server) listDevices(r *http.Request) (any, error) {
	if s.Devices == nil {
		return []api.Device{}, nil
	}
	return s.Devices(r.URL.Query().Has("all"))
}
