package server

import (
	"fmt"
	"net/http"
	"os"
)

// systemLogs answers /logs/ with the host's log files and lists of them. Links
// are followed only as long as they stay inside: a container may have made them.
func (s *Server) systemLogs(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(s.Kubelet.SystemLogs)
	if err != nil {
		fail(w, fmt.Errorf("open the host's logs: %w", err))
		return
	}
	defer root.Close()
	http.StripPrefix("/logs/", http.FileServerFS(root.FS())).ServeHTTP(steadyWriter{w, s.steady(w)}, r)
}

// A steadyWriter lets an answer of any length through, as long as it moves.
type steadyWriter struct {
	http.ResponseWriter
	*stream
}

func (s steadyWriter) Write(b []byte) (int, error) { return s.stream.Write(b) }

// Unwrap serves http.ResponseController.
func (s steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
