package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// errNoTar means that a container has no tar. In this case the agent reads and writes the files.
var errNoTar = errors.New("the container has no tar")

func filesPath(pod *v1.Pod, container string) string {
	return fmt.Sprintf("%s/%s/%s/%s", api.PathFiles, pod.Namespace, pod.Name, container)
}

// fetchFiles requests an archive of a path in the container from the agent, and writes the archive
// to w.
func (c *copyCommand) fetchFiles(ctx context.Context, pod *v1.Pod, container, from string, w io.Writer) error {
	resp, err := client.Request(ctx, c.Tool, http.MethodGet, filesPath(pod, container), url.Values{"path": {from}}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := client.CopyAnswer(c.Tool, w, resp.Body); err != nil {
		return err
	}
	if text := resp.Trailer.Get(api.TrailerError); text != "" {
		return errors.New(printable.Line(text))
	}
	return nil
}

// sendFiles sends an archive of a local file or directory to the agent. The agent extracts the archive in
// the container.
func (c *copyCommand) sendFiles(ctx context.Context, pod *v1.Pod, container, from, to string) error {
	base, err := baseName(from)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(w, from, base)
		w.CloseWithError(err)
		packed <- err
	}()
	resp, err := client.Request(ctx, c.Tool, http.MethodPost, filesPath(pod, container), url.Values{"path": {to}, "name": {base}}, r)
	r.Close() // unblocks pack
	if failed := <-packed; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// baseName returns the name of a local file. For "." and ".." it returns the name of the directory.
func baseName(from string) (string, error) {
	full, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	if base := filepath.Base(full); base != "/" {
		return base, nil
	}
	return "root", nil
}
