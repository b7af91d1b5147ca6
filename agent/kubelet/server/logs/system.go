package logs

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/untrusted"
)

// System serves /logs/, the host's log files and listings of their directories. A link is followed only to a file below
// the directory, because a container may have created it. A browser does not run scripts of the files, and treats them as
// files of another site.
func (l *Logs) System(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(l.SystemDir)
	if err != nil {
		response.WriteError(w, fmt.Errorf("open the host's logs: %w", err))
		return
	}
	defer root.Close()
	w.Header().Set("Content-Security-Policy", "sandbox")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	files := http.FileServerFS(systemFiles{root})
	http.StripPrefix("/logs/", files).ServeHTTP(steadyWriter{w, response.NewStream(w, "", l.IdleTimeout)}, r)
}

// systemFiles is the file system of the host's logs. A pod may have created the files.
type systemFiles struct{ root *os.Root }

// Open opens a regular file or a directory. For any other file it returns fs.ErrPermission, and does not open the file,
// because this could block or affect a device.
func (s systemFiles) Open(name string) (fs.File, error) {
	info, err := s.root.Stat(name) // fails for a link to a file outside the root
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return s.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return untrusted.OpenInRoot(s.root.Name(), name)
}

// A steadyWriter allows a response of unlimited length. Only each single write has a timeout.
type steadyWriter struct {
	http.ResponseWriter
	*response.Stream
}

func (s steadyWriter) Write(b []byte) (int, error) { return s.Stream.Write(b) }

// Unwrap supports http.ResponseController.
func (s steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
