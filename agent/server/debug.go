package server

import (
	"maps"
	"net/http"
	"net/http/pprof"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// configz answers with the configuration in force.
func (s *Server) configz(*http.Request) (map[string]*kubelet.KubeletConfiguration, error) {
	if s.Kubelet.Config == nil {
		return nil, refuse(http.StatusNotFound, "there is no configuration to show")
	}
	c := *s.Kubelet.Config
	c.APIVersion, c.Kind = kubelet.SchemeGroupVersion.String(), "KubeletConfiguration"
	c.StaticPodURLHeader = maps.Clone(c.StaticPodURLHeader)
	for name := range c.StaticPodURLHeader { // may be credentials
		c.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	return map[string]*kubelet.KubeletConfiguration{"kubeletconfig": &c}, nil
}

// routeProfiling adds the profiles of this process.
func (s *Server) routeProfiling(m mux) {
	m.HandleFunc("GET /debug/pprof/", pprof.Index)
	m.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	m.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}
