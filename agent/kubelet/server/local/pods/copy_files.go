package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"runtime/debug"

	"github.com/islet-edge/islet/agent/kubelet/containerfiles"
	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// maxCopies is the maximum number of copies of containers' files at a time. If a file system does not answer, a copy from or to it
// occupies a thread of the agent, even after the client has disconnected.
const maxCopies = 8

// copyFiles runs copyAll in a goroutine, and then calls end with the error of copyAll. The function copyAll reads or writes files of a
// container, and hangs if the file system does not answer. When the client has disconnected or the agent stops, the request ends without
// waiting for copyAll.
func (ps *Pods) copyFiles(copyAll func() error, end func(error)) error {
	select {
	case ps.copies <- struct{}{}:
	default:
		return response.Refuse(http.StatusTooManyRequests, "%d copies of files are running already: try again when one of them has ended",
			maxCopies)
	}
	go func() {
		var err error
		defer func() {
			<-ps.copies
			if v := recover(); v != nil {
				err = fmt.Errorf("internal error: %v", v)
				ps.Log.Error("a copy of files has panicked", "error", err, "stack", string(debug.Stack()))
			}
			end(err)
		}()
		err = copyAll()
	}()
	return nil
}

// containerRoot opens the root directory of the container in the path of a request.
func (ps *Pods) containerRoot(r *http.Request) (*containerfiles.Root, error) {
	pod, err := podlist.Find(ps.Lister.List(), r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		return nil, err
	}
	id, err := podlist.FindRunning(ps.Lister.List(), ps.Runtime, r)
	if err != nil {
		return nil, err
	}
	// The first process of another runtime's container may be a virtual machine.
	if class := pod.Spec.RuntimeClassName; class != nil && *class != "" {
		return nil, response.Refuse(http.StatusNotImplemented,
			"pod %s/%s has the runtime class %s, so its files can only be copied with a tar in the container",
			pod.Namespace, pod.Name, *class)
	}
	if ps.ContainerRoot != nil {
		return ps.ContainerRoot(r.Context(), id)
	}
	return containerfiles.Open(r.Context(), ps.Runtime, id)
}

// readFiles sends an archive of the file or directory ?path= of a container.
func (ps *Pods) readFiles(w http.ResponseWriter, r *http.Request) {
	packed, pack := io.Pipe()
	defer packed.Close()
	err := ps.copyFiles(func() error { return ps.packFiles(r, pack) }, func(err error) { pack.CloseWithError(err) })
	if err != nil {
		response.WriteError(w, err)
		return
	}
	defer context.AfterFunc(r.Context(), func() { packed.CloseWithError(context.Cause(r.Context())) })()
	var header [512]byte // of the first entry, or of the end of an empty archive
	if _, err := io.ReadFull(packed, header[:]); err != nil {
		writeFileError(w, err)
		return
	}
	out := response.NewStream(w, "application/x-tar", ps.IdleTimeout)
	if _, err := io.Copy(out, io.MultiReader(bytes.NewReader(header[:]), packed)); err != nil {
		out.BreakOff(r, false, err)
	}
}

func (ps *Pods) packFiles(r *http.Request, out io.Writer) error {
	root, err := ps.containerRoot(r)
	if err != nil {
		return err
	}
	defer root.Close()
	files, err := root.Prepare(r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	defer files.Close()
	return files.Pack(out)
}

// writeFiles extracts the archive in the body to the path ?path= of a container. If the path is a directory, the
// archive is extracted to the entry ?name= of the directory.
func (ps *Pods) writeFiles(w http.ResponseWriter, r *http.Request) {
	archive, feed := io.Pipe()
	ended := make(chan error, 1)
	err := ps.copyFiles(func() error { return ps.unpackFiles(r, archive) }, func(err error) {
		archive.CloseWithError(err)
		ended <- err
	})
	out := response.NewStream(w, "", ps.IdleTimeout)
	body := out.BodyReader(r.Body)
	if err == nil {
		defer context.AfterFunc(r.Context(), func() { feed.CloseWithError(context.Cause(r.Context())) })()
		_, err := io.Copy(feed, body)
		feed.CloseWithError(err)
	}
	if err == nil {
		select {
		case err = <-ended:
		case <-r.Context().Done():
			err = context.Cause(r.Context())
		}
	}
	if err != nil {
		io.Copy(io.Discard, io.LimitReader(body, maxIgnored)) // a client that is still sending does not read the response
		writeFileError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (ps *Pods) unpackFiles(r *http.Request, archive io.Reader) error {
	root, err := ps.containerRoot(r)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Unpack(archive, r.URL.Query().Get("path"), r.URL.Query().Get("name"))
}

func writeFileError(w http.ResponseWriter, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		err = response.Refusal{Code: http.StatusNotFound, Message: err.Error()}
	}
	response.WriteError(w, err)
}
