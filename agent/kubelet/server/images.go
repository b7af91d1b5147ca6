package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"sort"

	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/runtime/cri"
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
		response.WriteError(w,
			response.Refuse(http.StatusNotImplemented, "this container runtime cannot import archives: use its own tool"))
		return
	}
	out := response.NewProgress(w, s.StreamIdleTimeout)
	out.EnableFullDuplex()
	out.Flush()
	name := cmp.Or(r.URL.Query().Get("name"), "archive")
	defer out.KeepAlive()()
	refs, err := archives.ImportArchive(r.Context(), out.BodyReader(r.Body), name, out.SendProgress)
	out.SendImages(refs, err)
}

// pullImage pulls the image ?ref= from its registry, and sends the progress.
func (s *Server) pullImage(w http.ResponseWriter, r *http.Request) {
	ref := r.URL.Query().Get("ref")
	out := response.NewProgress(w, s.StreamIdleTimeout)
	out.Flush()
	defer out.KeepAlive()()
	req := &crapi.PullImageRequest{Image: &crapi.ImageSpec{Image: ref}}
	var err error
	if archives, ok := s.Images.(cri.Archives); ok {
		_, err = archives.PullWithProgress(r.Context(), req, out.SendProgress)
	} else {
		_, err = s.Images.PullImage(r.Context(), req)
	}
	out.SendImages([]string{ref}, err)
}
