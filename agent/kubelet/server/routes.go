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
	m.HandleFunc("GET /pods", answer(s.pods))
	m.HandleFunc("GET /pods/{$}", answer(s.pods))
	m.HandleFunc("GET /stats/summary", s.summary)
	m.HandleFunc("POST /stats/summary", s.summary)
	m.HandleFunc("GET /stats/flash", answer(s.flash))
	s.routeMetrics(m)
}

// routeDebugging adds the paths of port 10250 that enableDebuggingHandlers controls. They give access to containers, the
// host and this process.
func (s *Server) routeDebugging(m mux) {
	m.HandleFunc("GET /runningpods", answer(s.runningPods))
	m.HandleFunc("GET /runningpods/{$}", answer(s.runningPods))
	m.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	m.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	for _, pod := range []string{"{namespace}/{pod}", "{namespace}/{pod}/{uid}"} {
		for _, method := range []string{"GET", "POST"} {
			m.HandleFunc(method+" /exec/"+pod+"/{container}", s.exec)
			m.HandleFunc(method+" /attach/"+pod+"/{container}", s.attach)
			m.HandleFunc(method+" /portForward/"+pod, s.portForward)
		}
		m.HandleFunc("POST /run/"+pod+"/{container}", s.run)
	}
	m.HandleFunc("GET /configz", answer(s.configz))
	if s.Kubelet.Allocated != nil {
		m.HandleFunc("GET /allocatedPods", answer(s.allocatedPods))
		m.HandleFunc("GET /allocatedPods/{namespace}/{pod}", answer(s.allocatedPod))
		m.HandleFunc("GET /allocatedPods/{namespace}/{pod}/{uid}", answer(s.allocatedPod))
	}
	s.routeZPages(m)
	if s.Kubelet.SetLevel != nil {
		m.HandleFunc("/debug/flags/v", s.setLevel)
	} else {
		m.HandleFunc("/debug/flags/v", disabled("flags endpoint is disabled."))
	}
	if s.Kubelet.SystemLogs != "" {
		m.HandleFunc("GET /logs/", s.systemLogs)
	} else {
		m.HandleFunc("/logs/", disabled("logs endpoint is disabled."))
	}
	if s.Kubelet.Profiling {
		s.routeProfiling(m)
	} else {
		m.HandleFunc("/debug/pprof/", disabled("profiling endpoint is disabled."))
	}
}

// routeDisabled adds the paths of routeDebugging with a handler that reports them as disabled.
func (s *Server) routeDisabled(m mux) {
	for _, root := range []string{"run", "exec", "attach", "portForward", "containerLogs", "runningpods", "debug/pprof", "logs"} {
		m.HandleFunc("/"+root+"/", disabled("Debug endpoints are disabled."))
	}
}

func disabled(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) }
}

// routeIslet adds the paths that a kubelet does not have.
func (s *Server) routeIslet(m mux) {
	m.HandleFunc("GET "+api.PathStatus, answer(s.status))
	m.HandleFunc("POST "+api.PathAccept, answer(s.accept))
	if s.TakeOver != nil {
		m.HandleFunc("POST "+api.PathTakeOver, answer(s.takeOver))
	}
	if s.Shutdown != nil {
		m.HandleFunc("POST "+api.PathShutdown, s.shutdown)
		m.HandleFunc("DELETE "+api.PathShutdown, answer(s.cancelShutdown))
	}
	m.HandleFunc("GET "+api.PathDetails+"/{uid}", answer(s.details))
	m.HandleFunc("GET "+api.PathPods, s.watchPods)
	m.HandleFunc("POST "+api.PathPods, answer(s.applyManifest))
	m.HandleFunc("DELETE "+api.PathPods+"/{namespace}/{name}", answer(s.deletePod))
	m.HandleFunc("POST "+api.PathPods+"/{namespace}/{name}/restart", s.restartPod)
	m.HandleFunc("DELETE "+api.PathPods, answer(s.deleteManifest))
	if s.Objects != nil {
		m.HandleFunc("GET "+api.PathObjects, answer(s.listObjects))
		m.HandleFunc("DELETE "+api.PathObjects+"/{kind}/{namespace}/{name}", answer(s.deleteObject))
	}
	m.HandleFunc("GET "+api.PathImages, answer(s.listImages))
	m.HandleFunc("DELETE "+api.PathImages, answer(s.removeImage))
	m.HandleFunc("POST "+api.PathImageImport, s.importImage)
	m.HandleFunc("POST "+api.PathImagePull, s.pullImage)
	m.HandleFunc("POST "+api.PathImagePrune, answer(s.pruneImages))
	m.HandleFunc("GET "+api.PathEvents, s.listEvents)
	m.HandleFunc("GET "+api.PathClock, answer(s.clock))
	m.HandleFunc("DELETE "+api.PathClock, answer(s.resetClock))
	m.HandleFunc("GET "+api.PathDevices, answer(s.devices))
	m.HandleFunc("GET "+api.PathBoard, answer(func(*http.Request) (api.Board, error) { return s.Usage.Board(), nil }))
	m.HandleFunc("GET "+api.PathIO, answer(func(r *http.Request) ([]api.DiskIO, error) { return s.Usage.IO(r.Context()) }))
	s.routeConfiguration(m)
	s.routeUpdate(m)
	m.HandleFunc("GET "+api.PathSettings, answer(s.settings))
}

// A refusal is an error with an HTTP status code.
type refusal struct {
	code int
	msg  string
}

func (r refusal) Error() string { return r.msg }

func refuse(code int, format string, args ...any) error {
	return refusal{code, fmt.Sprintf(format, args...)}
}

// fail responds with an error as plain text, as a kubelet does.
func fail(w http.ResponseWriter, err error) { http.Error(w, err.Error(), codeOf(err)) }

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

// answer returns a handler that responds with f's result as JSON.
func answer[T any](f func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(v) // an error means that the client has disconnected
	}
}
