package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// devices returns one entry for each device that containers can request, with the users of the device.
func (s *Server) devices(r *http.Request) ([]api.Device, error) {
	if s.Devices == nil {
		return []api.Device{}, nil
	}
	return s.Devices(r.URL.Query().Has("all"))
}
