package server

import (
	"net/http"
	"net/http/pprof"
	"runtime"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/config"
)

// configz returns the effective configuration of the kubelet.
func (s *Server) configz(*http.Request) (any, error) {
	if s.Kubelet.Config == nil {
		return nil, response.Refuse(http.StatusNotFound, "the configuration is not available")
	}
	c := config.Redacted(s.Kubelet.Config)
	return map[string]*kubelet.KubeletConfiguration{"kubeletconfig": &c}, nil
}

// profileMemory enables the profiling of allocations at Go's default rate. It is disabled until the first request, because
// it slows the agent down.
func profileMemory() {
	if runtime.MemProfileRate == 0 {
		runtime.MemProfileRate = 512 << 10
	}
}

// routeProfiling adds the paths for the profiles of this process.
func (s *Server) routeProfiling(m mux) {
	m.HandleFunc("GET /debug/pprof/", pprof.Index)
	for _, of := range []string{"heap", "allocs"} {
		m.HandleFunc("GET /debug/pprof/"+of, func(w http.ResponseWriter, r *http.Request) {
			profileMemory()
			pprof.Index(w, r)
		})
	}
	m.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	m.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}
