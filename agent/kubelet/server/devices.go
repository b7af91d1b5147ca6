package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// devices returns the devices that containers can request, and their users.
func (s *Server) devices(r *http.Request) ([]api.Device, error) {
	if s.Devices == nil {
		return []api.Device{}, nil
	}
	return s.Devices(r.URL.Query().Has("all"))
}
