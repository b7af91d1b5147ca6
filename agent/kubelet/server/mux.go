package server

import (
	"net/http"
	"strings"
)

// A mux is an http.ServeMux that records the first parts of its paths, for /statusz.
type mux struct {
	*http.ServeMux
	roots map[string]bool
}

func newMux() mux { return mux{http.NewServeMux(), map[string]bool{}} }

// HandleFunc adds a path; pattern is as in http.ServeMux.
func (m mux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	_, path, _ := strings.Cut(pattern, "/")
	root, _, _ := strings.Cut(path, "/")
	m.roots["/"+root] = true
	m.ServeMux.HandleFunc(pattern, handler)
}
