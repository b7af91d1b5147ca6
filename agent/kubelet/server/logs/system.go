package logs

import (
	"fmt"
	"net/http"
	"os"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// System serves /logs/, the host's log files and listings of their directories. A link is followed only to a file below
// the directory, because a container may have created it.
func (l *Logs) System(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(l.SystemDir)
	if err != nil {
		response.WriteError(w, fmt.Errorf("open the host's logs: %w", err))
		return
	}
	defer root.Close()
	http.StripPrefix("/logs/", http.FileServerFS(root.FS())).ServeHTTP(steadyWriter{w, response.NewStream(w, "", l.IdleTimeout)}, r)
}

// A steadyWriter allows a response of unlimited length. Only each single write has a timeout.
type steadyWriter struct {
	http.ResponseWriter
	*response.Stream
}

func (s steadyWriter) Write(b []byte) (int, error) { return s.Stream.Write(b) }

// Unwrap supports http.ResponseController.
func (s steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
