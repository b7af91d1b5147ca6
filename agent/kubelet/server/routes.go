package server

import (
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/agent/kubelet/server/zpages"
)

// routeOpen adds the paths that need no debugging handlers: the paths that a kubelet serves on ports 10250 and 10255, and islet's
// /stats/flash.
func (s *Server) routeOpen(m mux) {
	m.addPaths(s.pages.HealthPaths())
	m.HandleFunc("GET /pods", response.JSON(s.lister.ListPods))
	m.HandleFunc("GET /pods/{$}", response.JSON(s.lister.ListPods))
	m.HandleFunc("GET /stats/summary", s.stats.Summary)
	m.HandleFunc("POST /stats/summary", s.stats.Summary)
	m.HandleFunc("GET /stats/flash", response.JSON(s.stats.GetFlash))
	m.HandleFunc("GET /metrics", s.stats.Metrics)
	m.HandleFunc("GET /metrics/resource", s.stats.ResourceMetrics)
	m.HandleFunc("GET /metrics/cadvisor", s.stats.ContainerMetrics)
	m.HandleFunc("GET /metrics/probes", s.stats.ProbeMetrics)
}

// routeDebugging adds the paths of port 10250 that enableDebuggingHandlers controls. These paths give access to containers, the host and
// this process.
func (s *Server) routeDebugging(m mux) {
	m.HandleFunc("GET /runningpods", response.JSON(s.lister.ListRunning))
	m.HandleFunc("GET /runningpods/{$}", response.JSON(s.lister.ListRunning))
	if s.Kubelet.Checkpoints != "" {
		m.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.streams.Checkpoint)
	}
	m.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs.Container)
	for _, pod := range []string{"{namespace}/{pod}", "{namespace}/{pod}/{uid}"} {
		for _, method := range []string{"GET", "POST"} {
			m.HandleFunc(method+" /exec/"+pod+"/{container}", s.streams.Exec)
			m.HandleFunc(method+" /attach/"+pod+"/{container}", s.streams.Attach)
			m.HandleFunc(method+" /portForward/"+pod, s.streams.PortForward)
		}
		m.HandleFunc("POST /run/"+pod+"/{container}", s.streams.Run)
	}
	m.HandleFunc("GET /configz", response.JSON(s.pages.Configz))
	if s.Kubelet.Allocated != nil {
		m.HandleFunc("GET /allocatedPods", response.JSON(s.lister.ListAllocated))
		m.HandleFunc("GET /allocatedPods/{namespace}/{pod}", response.JSON(s.lister.GetAllocated))
		m.HandleFunc("GET /allocatedPods/{namespace}/{pod}/{uid}", response.JSON(s.lister.GetAllocated))
	}
	m.HandleFunc("GET /statusz", s.pages.Statusz(m.sortedRoots))
	m.HandleFunc("GET /flagz", s.pages.Flagz)
	if s.Kubelet.SetLevel != nil {
		m.HandleFunc("/debug/flags/v", s.pages.SetLevel)
	} else {
		m.HandleFunc("/debug/flags/v", disabledHandler("flags endpoint is disabled."))
	}
	if s.Kubelet.SystemLogs != "" {
		m.HandleFunc("GET /logs/", s.logs.System)
	} else {
		m.HandleFunc("/logs/", disabledHandler("logs endpoint is disabled."))
	}
	if s.Kubelet.Profiling {
		m.addPaths(zpages.Profiles())
	} else {
		m.HandleFunc("/debug/pprof/", disabledHandler("profiling endpoint is disabled."))
	}
}

// routeDisabled adds the paths of routeDebugging with a handler that reports them as disabled.
func (s *Server) routeDisabled(m mux) {
	for _, root := range []string{"run", "exec", "attach", "portForward", "containerLogs", "runningpods", "debug/pprof", "logs"} {
		m.HandleFunc("/"+root+"/", disabledHandler("Debug endpoints are disabled."))
	}
}

func disabledHandler(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) }
}

// routeIslet adds the paths that a kubelet does not have.
func (s *Server) routeIslet(m mux) {
	for _, paths := range []map[string]http.HandlerFunc{s.status.Paths(), s.pods.Paths(), s.images.Paths(), s.node.Paths()} {
		m.addPaths(paths)
	}
}
