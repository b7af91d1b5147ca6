package server

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// A mux is an http.ServeMux that records the first element of each path for /statusz.
type mux struct {
	*http.ServeMux
	roots map[string]bool
}

func newMux() mux { return mux{http.NewServeMux(), map[string]bool{}} }

// HandleFunc adds a handler for a pattern, as the method of http.ServeMux does.
func (m mux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	_, path, _ := strings.Cut(pattern, "/")
	root, _, _ := strings.Cut(path, "/")
	m.roots["/"+root] = true
	m.ServeMux.HandleFunc(pattern, handler)
}

// addPaths adds a handler for each pattern.
func (m mux) addPaths(paths map[string]http.HandlerFunc) {
	for pattern, handler := range paths {
		m.HandleFunc(pattern, handler)
	}
}

// sortedRoots returns the first elements of all paths.
func (m mux) sortedRoots() []string { return slices.Sorted(maps.Keys(m.roots)) }
