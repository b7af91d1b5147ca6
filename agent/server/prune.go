package server

import (
	"context"
	"fmt"
	"net/http"

	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/api"
	"github.com/islet-edge/islet/podspec"
)

// pruneImages removes the images that no container has and no pod that is stored
// needs, whether it runs or not; with ?dryRun it only lists them.
func (s *Server) pruneImages(r *http.Request) ([]api.Image, error) {
	list, err := s.listImages(r)
	if err != nil {
		return nil, err
	}
	dry := r.URL.Query().Has("dryRun")
	gone := []api.Image{}
	for _, i := range list {
		if i.Pinned {
			continue
		}
		// Looked at for each one, since a pod may be applied meanwhile.
		needed, err := s.neededImages(r.Context())
		if err != nil {
			return gone, err
		}
		if needed[i.ID] {
			continue
		}
		if !dry {
			if _, err := s.Images.RemoveImage(r.Context(), &crapi.RemoveImageRequest{Image: &crapi.ImageSpec{Image: i.ID}}); err != nil {
				return gone, fmt.Errorf("remove image %s: %w", i.ID, err)
			}
		}
		gone = append(gone, i)
	}
	return gone, nil
}

// neededImages are the IDs of the images that containers have or pods want. What
// cannot be found out is an error, so that nothing is removed by mistake.
func (s *Server) neededImages(ctx context.Context) (map[string]bool, error) {
	refs := map[string]bool{}
	for _, p := range s.Pods.List() {
		for _, ref := range imagesOf(&p.Spec) {
			refs[ref] = true
		}
		for st := range podspec.Statuses(&p.Status) {
			refs[st.ImageID] = true
		}
	}
	containers, err := s.Runtime.ListContainers(ctx, &crapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	needed := map[string]bool{}
	for _, c := range containers.Containers {
		needed[c.ImageId] = true
		needed[c.ImageRef] = true
		refs[c.GetImage().GetImage()] = true
	}
	delete(refs, "")
	for ref := range refs {
		st, err := s.Images.ImageStatus(ctx, &crapi.ImageStatusRequest{Image: &crapi.ImageSpec{Image: ref}})
		if err != nil {
			return nil, fmt.Errorf("find image %s: %w", ref, err)
		}
		if st.Image != nil {
			needed[st.Image.Id] = true
		}
	}
	return needed, nil
}
