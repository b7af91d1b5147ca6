package images

import (
	"context"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/runtime/cri"
)

// Pods returns the pods of this node.
type Pods interface {
	List() []*v1.Pod
}

// Garbage finds and removes unused images. *garbage.Garbage implements it.
type Garbage interface {
	// Prune removes all unused images. If dry is true, it only lists them.
	Prune(ctx context.Context, dry bool) api.Pruned
	// ImageUser describes a user of the image with the given ID, such as a pod. The description is empty if
	// the image is unused.
	ImageUser(ctx context.Context, id string) (string, error)
	// ImageUsers returns the users of each image by its ID, sorted: pods as namespace/name, and others as a description.
	ImageUsers(ctx context.Context) (map[string][]string, error)
}

// Config configures Images. Only the removal of images requires Garbage.
type Config struct {
	Pods        Pods
	Store       cri.Images // imports of archives and the progress of pulls require cri.Archives
	Garbage     Garbage
	IdleTimeout time.Duration // timeout of a write to a client
}

// Images serves the paths about images.
type Images struct{ Config }

// New returns Images.
func New(c Config) *Images { return &Images{c} }

// Paths returns the handlers by pattern.
func (im *Images) Paths() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET " + api.PathImages:       response.JSON(im.listImages),
		"DELETE " + api.PathImages:    response.JSON(im.removeImage),
		"POST " + api.PathImageImport: im.importImage,
		"POST " + api.PathImagePull:   im.pullImage,
		"POST " + api.PathImagePrune:  response.JSON(im.pruneImages),
	}
}
