package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// pruneImages removes the images that nothing needs; with ?dryRun it only says which.
func (s *Server) pruneImages(r *http.Request) (api.Pruned, error) {
	return s.Garbage.Prune(r.Context(), r.URL.Query().Has("dryRun")), nil
}
