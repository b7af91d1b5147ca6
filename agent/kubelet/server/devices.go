package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// devices lists those that containers can ask for, and who has them.
func (s *Server) devices(r *http.Request) ([]api.Device, error) {
	if s.Devices == nil {
		return []api.Device{}, nil
	}
	return s.Devices(r.URL.Query().Has("all"))
}
