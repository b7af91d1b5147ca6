package server

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"sync"
	"time"

	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/runtime/cri"
)

const (
	stallTimeout     = 2 * time.Minute        // timeout of a read from an archive
	progressInterval = 200 * time.Millisecond // minimum interval of progress per image reference
)

// listImages returns the images sorted by name.
func (s *Server) listImages(r *http.Request) (any, error) {
	list, err := s.Images.ListImages(r.Context(), &crapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	images := make([]api.Image, 0, len(list.Images))
	for _, i := range list.Images {
		images = append(images, api.Image{ID: i.Id, Tags: i.RepoTags, Digests: i.RepoDigests, Size: i.Size, Pinned: i.Pinned})
	}
	if r.URL.Query().Has("details") {
		if err := s.addImageDetails(r.Context(), images); err != nil {
			return nil, err
		}
	}
	// slices.SortFunc would add 20 KB to the binary for each type of element.
	sort.Slice(images, func(i, j int) bool {
		return cmp.Or(slices.Compare(images[i].Tags, images[j].Tags), cmp.Compare(images[i].ID, images[j].ID)) < 0
	})
	return images, nil
}

// importImage imports the archive in the body of the request, and sends its progress.
func (s *Server) importImage(w http.ResponseWriter, r *http.Request) {
	archives, ok := s.Images.(cri.Archives)
	if !ok {
		writeError(w, refusalError(http.StatusNotImplemented, "this container runtime cannot import archives: use its own tool"))
		return
	}
	out := s.newProgress(w, r)
	out.c.EnableFullDuplex()
	out.Flush()
	name := cmp.Or(r.URL.Query().Get("name"), "archive")
	defer out.keepAlive()()
	refs, err := archives.ImportArchive(r.Context(), stallReader{r.Body, out.c}, name, out.sendProgress)
	out.sendImages(refs, err)
}

// pullImage pulls the image ?ref= from its registry, and sends the progress.
func (s *Server) pullImage(w http.ResponseWriter, r *http.Request) {
	ref := r.URL.Query().Get("ref")
	out := s.newProgress(w, r)
	out.Flush()
	defer out.keepAlive()()
	req := &crapi.PullImageRequest{Image: &crapi.ImageSpec{Image: ref}}
	var err error
	if archives, ok := s.Images.(cri.Archives); ok {
		_, err = archives.PullWithProgress(r.Context(), req, out.sendProgress)
	} else {
		_, err = s.Images.PullImage(r.Context(), req)
	}
	out.sendImages([]string{ref}, err)
}

// stallReader reads the body of a request. The client may pause at most for stallTimeout.
type stallReader struct {
	body io.Reader
	c    *http.ResponseController
}

func (s stallReader) Read(b []byte) (int, error) {
	s.c.SetReadDeadline(time.Now().Add(stallTimeout))
	n, err := s.body.Read(b)
	if err != nil { // net/http continues to read, to detect that the client has disconnected
		s.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

// progress sends api.Progress lines, at a limited rate per reference.
type progress struct {
	*lines
	mu    sync.Mutex
	last  map[string]sentStatus
	ended bool
}

type sentStatus struct {
	status string
	at     time.Time
}

func (s *Server) newProgress(w http.ResponseWriter, r *http.Request) *progress {
	return &progress{lines: s.lines(w, r), last: map[string]sentStatus{}}
}

func (p *progress) sendProgress(i cri.ImportProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[i.Ref]
	if last.status == i.Status && time.Since(last.at) < progressInterval {
		return
	}
	p.last[i.Ref] = sentStatus{i.Status, time.Now()}
	p.send(api.Progress{Ref: i.Ref, Status: i.Status, Current: i.Current, Total: i.Total})
}

// keepAlive sends an empty line periodically until the returned function is called, so that the client can
// distinguish a slow operation from an agent that hangs.
func (p *progress) keepAlive() (done func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			p.mu.Lock()
			if !p.ended {
				p.send(api.Progress{})
			}
			p.mu.Unlock()
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// sendLine sends a line at once, without the rate limit.
func (p *progress) sendLine(line api.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(line)
}

func (p *progress) sendImages(images []string, err error) {
	p.sendResult(api.Progress{Images: images}, err)
}

// sendResult sends the last line, which reports the result or the error.
func (p *progress) sendResult(last api.Progress, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if err != nil {
		p.send(api.Progress{Error: err.Error()})
		return
	}
	last.Done = true
	p.send(last)
}
