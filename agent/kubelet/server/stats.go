package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/metrics/exposition"
)

// maxForm bounds what a request may post.
const maxForm = 64 << 10

// flash answers /stats/flash, the sibling of /stats/summary that a kubelet has not. Its figures
// are not measured again for a while, however often they are asked for.
func (s *Server) flash(r *http.Request) (*api.Flash, error) {
	if s.Flash == nil {
		return nil, refuse(http.StatusNotFound, "nobody counts what is written here")
	}
	return s.Flash(r.Context()), nil
}

// summary answers /stats/summary: what the host and the running pods use. The parameter
// only_cpu_and_memory may be in the path or posted, as a kubelet takes it.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	}
	if err := r.ParseForm(); err != nil {
		fail(w, refuse(http.StatusBadRequest, "parse request: %v", err))
		return
	}
	look, err := s.Usage.Look(r.Context(), r.Form.Get("only_cpu_and_memory") == "true")
	if err != nil {
		fail(w, err)
		return
	}
	exposition.ServeSummary(w, look)
}
