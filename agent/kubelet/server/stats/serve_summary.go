package stats

import (
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/metrics/exposition"
)

// maxForm is the maximum size of a form in the body of a request.
const maxForm = 64 << 10

// GetFlash serves /stats/flash, which a kubelet does not have. Flash may return cached data.
func (s *Stats) GetFlash(r *http.Request) (any, error) {
	if s.Flash == nil {
		return nil, response.Refuse(http.StatusNotFound, "disk writes are not measured on this node")
	}
	return s.Flash(r.Context()), nil
}

// Summary serves /stats/summary, the resource use of the host and of the running pods. As with a kubelet, the parameter
// only_cpu_and_memory may be in the query or in a form in the body.
func (s *Stats) Summary(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	}
	if err := r.ParseForm(); err != nil {
		response.WriteError(w, response.Refuse(http.StatusBadRequest, "parse request: %v", err))
		return
	}
	look, err := s.Usage.StreamSummary(r.Context(), r.Form.Get("only_cpu_and_memory") == "true")
	if err != nil {
		response.WriteError(w, err)
		return
	}
	exposition.ServeSummary(w, look)
}
