package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Resolved describes an image for the creation of a container.
type Resolved struct {
	// ID is the image ID, which is the digest of its config. ChainID is the name of its top
	// snapshot. It is "" for an image without layers. The config and the snapshot exist.
	ID, ChainID string
	// RepoDigest is the image's digest in its registry. It is "" for an image that was imported
	// without a name.
	RepoDigest  string
	Snapshotter string
	// Image has the ID as its name and the manifest for this host as its target.
	Image client.Image
	// Config has the fields of the image's config that containers need: platform, user,
	// environment, command, volumes, working directory and stop signal. It is shared, so do not
	// modify its slices and maps.
	Config ocispec.Image
}

// Resolve returns the image with this ID, ID prefix, or reference by tag or digest. Short names are
// completed. The error is errdefs.ErrNotFound if the image does not exist. After the first call
// Resolve needs no I/O, unless the image's environment or command is very long.
func (s *Service) Resolve(ctx context.Context, ref string) (Resolved, error) {
	e, err := s.findImage(withNamespace(ctx), ref)
	if err != nil {
		return Resolved{}, err
	}
	config, err := s.configOf(withNamespace(ctx), e)
	if err != nil {
		return Resolved{}, err
	}
	s.index.mu.Lock()
	digests := append(s.index.criImage(e).RepoDigests, "")
	s.index.mu.Unlock()
	img := images.Image{Name: e.id.String(), Target: e.manifest}
	return Resolved{
		ID:          e.id.String(),
		ChainID:     e.chainID.String(),
		RepoDigest:  digests[0],
		Snapshotter: s.c.Snapshotter,
		Image:       client.NewImageWithPlatform(s.c.Client, img, s.platform),
		Config:      config,
	}, nil
}

// ListImages returns the images, sorted by ID.
func (s *Service) ListImages(ctx context.Context, req *api.ListImagesRequest) (*api.ListImagesResponse, error) {
	ctx = withNamespace(ctx)
	if ref := req.GetFilter().GetImage().GetImage(); ref != "" {
		st, err := s.ImageStatus(ctx, &api.ImageStatusRequest{Image: &api.ImageSpec{Image: ref}})
		if err != nil || st.Image == nil {
			return &api.ListImagesResponse{}, err
		}
		return &api.ListImagesResponse{Images: []*api.Image{st.Image}}, nil
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	if err := s.loadIndex(ctx); err != nil {
		return nil, err
	}
	out := &api.ListImagesResponse{}
	for _, id := range slices.Sorted(maps.Keys(s.index.images)) {
		out.Images = append(out.Images, s.index.criImage(s.index.images[id]))
	}
	return out, nil
}

// HasIncomplete reports whether the node has images that cannot be used, because a document or a layer of them cannot be read. ListImages
// does not return these images. They may be usable later: after a short disturbance of the disk.
func (s *Service) HasIncomplete(ctx context.Context) (bool, error) {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	err := s.loadIndex(withNamespace(ctx))
	return len(s.index.incomplete) > 0, err
}

// ImageStatus returns the status of an image. If the image does not exist, the response has no
// Image, and the error is nil. If Verbose is set, the response includes the image's config and
// chain ID.
func (s *Service) ImageStatus(ctx context.Context, req *api.ImageStatusRequest) (*api.ImageStatusResponse, error) {
	ctx = withNamespace(ctx)
	e, err := s.findImage(ctx, req.GetImage().GetImage())
	if errors.Is(err, errdefs.ErrNotFound) {
		return &api.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	out := &api.ImageStatusResponse{}
	if req.GetVerbose() {
		if out.Info, err = s.verboseInfo(ctx, e); err != nil {
			return nil, err
		}
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	out.Image = s.index.criImage(e)
	return out, nil
}

// verboseInfo returns the verbose information in the form that crictl displays.
func (s *Service) verboseInfo(ctx context.Context, e *entry) (map[string]string, error) {
	config, err := readStored(ctx, s.c.Client.ContentStore(), ocispec.Descriptor{Digest: e.id})
	if err != nil {
		return nil, fmt.Errorf("read config of image %s: %w", e.id, err)
	}
	info, err := json.Marshal(map[string]any{"chainID": e.chainID, "imageSpec": json.RawMessage(config)})
	if err != nil {
		return nil, fmt.Errorf("config of image %s: %w", e.id, err)
	}
	return map[string]string{"info": string(info)}, nil
}

// criImage converts e to the CRI's type. The caller holds x.mu.
func (x *imageIndex) criImage(e *entry) *api.Image {
	img := &api.Image{
		Id:   e.id.String(),
		Size: uint64(e.size),
		Spec: &api.ImageSpec{Image: e.id.String()},
	}
	for _, name := range x.namesOf(e.id) {
		img.Pinned = img.Pinned || x.pins[name]
		if _, err := digest.Parse(name); err == nil {
			continue // an image without a name is recorded under its image ID
		}
		n, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			continue
		}
		if _, ok := n.(reference.Tagged); ok {
			img.RepoTags = append(img.RepoTags, name)
		}
		if d := withDigest(n, x.names[name].target); !slices.Contains(img.RepoDigests, d) {
			img.RepoDigests = append(img.RepoDigests, d)
		}
	}
	img.Uid, img.Username = criUser(e.user)
	return img
}

// criUser returns the user of an image's config in the CRI's fields, as a number or a name, without
// the group.
func criUser(u string) (*api.Int64Value, string) {
	u, _, _ = strings.Cut(u, ":")
	if uid, err := strconv.ParseInt(u, 10, 64); err == nil {
		return &api.Int64Value{Value: uid}, ""
	}
	return nil, u
}
