package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/internal/api"
)

// routeOpen adds the read-only paths that a kubelet has on every port.
func (s *Server) routeOpen(m mux) {
	s.routeHealthz(m)
	m.HandleFunc("GET /pods", jsonHandler(s.listPods))
	m.HandleFunc("GET /pods/{$}", jsonHandler(s.listPods))
	m.HandleFunc("GET /stats/summary", s.serveSummary)
	m.HandleFunc("POST /stats/summary", s.serveSummary)
	m.HandleFunc("GET /stats/flash", jsonHandler(s.getFlash))
	s.routeMetrics(m)
}

// routeDebugging adds the paths of port 10250 that enableDebuggingHandlers controls. They give access to containers, the
// host and this process.
func (s *Server) routeDebugging(m mux) {
	m.HandleFunc("GET /runningpods", jsonHandler(s.runningPods))
	m.HandleFunc("GET /runningpods/{$}", jsonHandler(s.runningPods))
	m.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.serveCheckpoint)
	m.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	for _, pod := range []string{"{namespace}/{pod}", "{namespace}/{pod}/{uid}"} {
		for _, method := range []string{"GET", "POST"} {
			m.HandleFunc(method+" /exec/"+pod+"/{container}", s.serveExec)
			m.HandleFunc(method+" /attach/"+pod+"/{container}", s.serveAttach)
			m.HandleFunc(method+" /portForward/"+pod, s.portForward)
		}
		m.HandleFunc("POST /run/"+pod+"/{container}", s.serveRun)
	}
	m.HandleFunc("GET /configz", jsonHandler(s.configz))
	if s.Kubelet.Allocated != nil {
		m.HandleFunc("GET /allocatedPods", jsonHandler(s.allocatedPods))
		m.HandleFunc("GET /allocatedPods/{namespace}/{pod}", jsonHandler(s.allocatedPod))
		m.HandleFunc("GET /allocatedPods/{namespace}/{pod}/{uid}", jsonHandler(s.allocatedPod))
	}
	s.routeZPages(m)
	if s.Kubelet.SetLevel != nil {
		m.HandleFunc("/debug/flags/v", s.setLevel)
	} else {
		m.HandleFunc("/debug/flags/v", disabledHandler("flags endpoint is disabled."))
	}
	if s.Kubelet.SystemLogs != "" {
		m.HandleFunc("GET /logs/", s.systemLogs)
	} else {
		m.HandleFunc("/logs/", disabledHandler("logs endpoint is disabled."))
	}
	if s.Kubelet.Profiling {
		s.routeProfiling(m)
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
	m.HandleFunc("GET "+api.PathStatus, jsonHandler(s.getStatus))
	m.HandleFunc("POST "+api.PathAccept, jsonHandler(s.acceptHeldPods))
	if s.TakeOver != nil {
		m.HandleFunc("POST "+api.PathTakeOver, jsonHandler(s.takeOver))
	}
	if s.Shutdown != nil {
		m.HandleFunc("POST "+api.PathShutdown, s.serveShutdown)
		m.HandleFunc("DELETE "+api.PathShutdown, jsonHandler(s.cancelShutdown))
	}
	m.HandleFunc("GET "+api.PathDetails+"/{uid}", jsonHandler(s.getDetails))
	m.HandleFunc("GET "+api.PathOrigins, jsonHandler(s.origins))
	m.HandleFunc("GET "+api.PathPods, s.watchPods)
	m.HandleFunc("POST "+api.PathPods, jsonHandler(s.applyManifest))
	m.HandleFunc("DELETE "+api.PathPods+"/{namespace}/{name}", jsonHandler(s.deletePod))
	m.HandleFunc("POST "+api.PathPods+"/{namespace}/{name}/restart", s.restartPod)
	m.HandleFunc("POST "+api.PathPods+"/{namespace}/{name}/debug", jsonHandler(s.debugPod))
	m.HandleFunc("DELETE "+api.PathPods, jsonHandler(s.deleteManifest))
	if s.Objects != nil {
		m.HandleFunc("GET "+api.PathObjects, jsonHandler(s.listObjects))
		m.HandleFunc("DELETE "+api.PathObjects+"/{kind}/{namespace}/{name}", jsonHandler(s.deleteObject))
	}
	m.HandleFunc("GET "+api.PathImages, jsonHandler(s.listImages))
	m.HandleFunc("DELETE "+api.PathImages, jsonHandler(s.removeImage))
	m.HandleFunc("POST "+api.PathImageImport, s.importImage)
	m.HandleFunc("POST "+api.PathImagePull, s.pullImage)
	m.HandleFunc("POST "+api.PathImagePrune, jsonHandler(s.pruneImages))
	m.HandleFunc("GET "+api.PathEvents, s.listEvents)
	m.HandleFunc("GET "+api.PathClock, jsonHandler(s.getClock))
	m.HandleFunc("DELETE "+api.PathClock, jsonHandler(s.resetClock))
	m.HandleFunc("GET "+api.PathDevices, jsonHandler(s.listDevices))
	m.HandleFunc("GET "+api.PathBoard, jsonHandler(func(*http.Request) (any, error) { return s.Usage.Board(), nil }))
	m.HandleFunc("GET "+api.PathIO, jsonHandler(func(r *http.Request) (any, error) { return s.Usage.IO(r.Context()) }))
	m.HandleFunc("GET "+api.PathFiles+"/{namespace}/{pod}/{container}", s.readFiles)
	m.HandleFunc("POST "+api.PathFiles+"/{namespace}/{pod}/{container}", s.writeFiles)
	m.HandleFunc("GET "+api.PathProcesses+"/{namespace}/{pod}", jsonHandler(s.processes))
	s.routeConfiguration(m)
	s.routeUpdate(m)
	s.routeBundle(m)
	s.routeBundleNode(m)
	m.HandleFunc("GET "+api.PathSettings, jsonHandler(s.getSettings))
}

// A refusal is an error with an HTTP status code.
type refusal struct {
	code int
	msg  string
}

func (r refusal) Error() string { return r.msg }

// refusalError is not inlined, because it is called in many places.
//
//go:noinline
func refusalError(code int, format string, args ...any) error {
	return refusal{code, fmt.Sprintf(format, args...)}
}

// writeError responds with an error as plain text, as a kubelet does.
func writeError(w http.ResponseWriter, err error) { http.Error(w, err.Error(), codeOf(err)) }

func codeOf(err error) int {
	var r refusal
	switch {
	case errors.As(err, &r):
		return r.code
	case errdefs.IsNotFound(err):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

func isNotFound(err error) bool { return codeOf(err) == http.StatusNotFound }

// jsonHandler returns a handler that responds with f's result as JSON. It is not generic, because each instance would add
// 1 KB to the program.
func jsonHandler(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		writeJSON(w, v, err)
	}
}

// writeJSON responds with v as JSON, or with err unless it is nil.
func writeJSON(w http.ResponseWriter, v any, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // an error means that the client has disconnected
}
