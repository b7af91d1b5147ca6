package server

import (
	"net/http"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// maxForm bounds what a request may post.
const maxForm = 64 << 10

// summary answers /stats/summary: what the host and the running pods use. The parameter
// only_cpu_and_memory may be in the path or posted, as a kubelet takes it.
func (s *Server) summary(r *http.Request) (*stats.Summary, error) {
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	}
	if err := r.ParseForm(); err != nil {
		return nil, refuse(http.StatusBadRequest, "parse request: %v", err)
	}
	return s.Usage.Summary(r.Context(), r.Form.Get("only_cpu_and_memory") == "true")
}
