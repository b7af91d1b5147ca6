package server

import (
	"net/http"
)

// pruneImages removes unused images. With ?dryRun it only lists them.
func (s *Server) pruneImages(r *http.Request) (any, error) {
	return s.Garbage.Prune(r.Context(), r.URL.Query().Has("dryRun")), nil
}
