package images

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"sort"

	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/api"
)

// listImages returns the images sorted by name.
func (im *Images) listImages(r *http.Request) (any, error) {
	list, err := im.Store.ListImages(r.Context(), &crapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	images := make([]api.Image, 0, len(list.Images))
	for _, i := range list.Images {
		images = append(images, api.Image{ID: i.Id, Tags: i.RepoTags, Digests: i.RepoDigests, Size: i.Size, Pinned: i.Pinned})
	}
	if r.URL.Query().Has("details") {
		if err := im.addImageDetails(r.Context(), images); err != nil {
			return nil, err
		}
	}
	// slices.SortFunc would add 20 KB to the binary for each type of element.
	sort.Slice(images, func(i, j int) bool {
		return cmp.Or(slices.Compare(images[i].Tags, images[j].Tags), cmp.Compare(images[i].ID, images[j].ID)) < 0
	})
	return images, nil
}
