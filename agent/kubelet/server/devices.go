package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// devices returns what containers can request as a device, and which containers use it.
func (s *Server) devices(r *http.Request) ([]api.Device, error) {
	if s.Devices == nil {
		return []api.Device{}, nil
	}
	return s.Devices(r.URL.Query().Has("all"))
}
