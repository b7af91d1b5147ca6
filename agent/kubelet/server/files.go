package server

import (
	"errors"
	"io"
	"io/fs"
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/containerfiles"
)

// containerRoot opens the root directory of the container in the path of a request.
func (s *Server) containerRoot(r *http.Request) (*containerfiles.Root, error) {
	pod, err := s.findPod(r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		return nil, err
	}
	id, err := s.findRunning(r)
	if err != nil {
		return nil, err
	}
	// The first process of another runtime's container may be a virtual machine.
	if class := pod.Spec.RuntimeClassName; class != nil && *class != "" {
		return nil, refusalError(http.StatusNotImplemented,
			"pod %s/%s has the runtime class %s, so its files can only be copied with a tar in the container",
			pod.Namespace, pod.Name, *class)
	}
	if s.ContainerRoot != nil {
		return s.ContainerRoot(r.Context(), id)
	}
	return containerfiles.Open(r.Context(), s.Runtime, id)
}

// readFiles sends an archive of the file or directory ?path= of a container.
func (s *Server) readFiles(w http.ResponseWriter, r *http.Request) {
	root, err := s.containerRoot(r)
	if err != nil {
		writeError(w, err)
		return
	}
	defer root.Close()
	files, err := root.Prepare(r.URL.Query().Get("path"))
	if errors.Is(err, fs.ErrNotExist) {
		err = refusal{http.StatusNotFound, err.Error()}
	}
	if err != nil {
		writeError(w, err)
		return
	}
	defer files.Close()
	out := s.stream(w, "application/x-tar")
	if err := files.Pack(out); err != nil {
		out.breakOff(r, false, err)
	}
}

// writeFiles extracts the archive in the body to ?path= of a container, or to its entry ?name= if it is a directory.
func (s *Server) writeFiles(w http.ResponseWriter, r *http.Request) {
	out := s.newStream(w)
	body := stallReader{r.Body, out.c}
	err := s.unpackFiles(r, body)
	if errors.Is(err, fs.ErrNotExist) {
		err = refusal{http.StatusNotFound, err.Error()}
	}
	if err != nil {
		io.Copy(io.Discard, io.LimitReader(body, maxIgnored)) // a client that is still sending does not read the response
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) unpackFiles(r *http.Request, body io.Reader) error {
	root, err := s.containerRoot(r)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Unpack(body, r.URL.Query().Get("path"), r.URL.Query().Get("name"))
}
