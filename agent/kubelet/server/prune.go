package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// pruneImages removes unused images. With ?dryRun it only lists them.
func (s *Server) pruneImages(r *http.Request) (api.Pruned, error) {
	return s.Garbage.Prune(r.Context(), r.URL.Query().Has("dryRun")), nil
}
