package pods

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/containerfiles"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/api"
)

// Lister returns the pods of this node.
type Lister interface {
	// List returns every pod with its newest status. Callers must not change the pods.
	List() []*v1.Pod
	// Changed returns a channel that is closed at the next change of a pod or its status. A caller that calls Changed
	// before List misses no change.
	Changed() <-chan struct{}
}

// Local is the source of pods for islet apply and delete.
type Local interface {
	Apply(ctx context.Context, pods []*v1.Pod) error
	// Delete ends a pod with a grace period in seconds. If grace is nil, the pod's own grace period is used.
	Delete(ctx context.Context, uid types.UID, grace *int64) error
	// AddEphemeral adds an ephemeral container to a pod of any source but the API server. The parameter add must return a copy of the
	// pod with the container.
	AddEphemeral(ctx context.Context, uid types.UID, add func(*v1.Pod) (*v1.Pod, error)) error
}

// Usage measures pods.
type Usage interface {
	// PodProcesses returns the processes of a pod's running containers.
	PodProcesses(ctx context.Context, uid string) (api.Processes, error)
}

// Objects are the ConfigMaps, Secrets and claims of the node's manifests.
type Objects interface {
	List() []api.Object
	// Apply creates or updates objects that a user applied. If it fails, it changes no object. If dry is
	// true, Apply only reports the changes.
	Apply(ctx context.Context, objects []manifest.Object, dry bool) ([]api.Applied, error)
	// Delete removes an object that a user applied. If the parameter data is true, Delete also deletes the files of a
	// claim.
	Delete(ctx context.Context, kind, namespace, name string, data bool) api.Deleted
}

// Config configures Pods. The functions may be nil, except Decode, and Restart if pods are restarted.
type Config struct {
	Lister  Lister
	Local   Local
	Usage   Usage
	Runtime containerfiles.Runtime
	// Objects manages the objects of manifests. If it is nil, manifests can contain only pods.
	Objects Objects

	// Decode decodes a manifest for the local source. It sets the defaults and validates the result.
	Decode func(data []byte, origin string) (manifest.Set, error)
	// IgnoredFields returns the fields of a pod that have no effect on this node, and a sentence about each of them.
	IgnoredFields func(*v1.Pod) (fields, sentences []string)
	// FindRejections returns for each pod of a manifest why the node would reject it at present, or "".
	FindRejections func([]*v1.Pod) []string
	// Describe adds information about other parts of the node to the status. It tells whether the node belongs to a cluster.
	Describe func(ctx context.Context, s *api.Status)
	// Details returns information about a pod that the Pod object does not contain.
	Details func(types.UID) api.Details
	// Origin returns the file, URL, command or API server that a pod comes from, or "" if it is unknown.
	Origin func(types.UID) string
	// ContainerRoot opens the root directory of a running container. If it is nil, containerfiles.Open is used.
	ContainerRoot func(ctx context.Context, id string) (*containerfiles.Root, error)
	// Restart restarts a container.
	Restart func(uid types.UID, container, id string, grace time.Duration)

	IdleTimeout time.Duration // timeout of a write to a client
	Log         *slog.Logger
}

// Pods serves the paths about pods.
type Pods struct {
	Config
	copies chan struct{} // an element for each copy of a container's files
}

// New returns Pods.
func New(c Config) *Pods { return &Pods{c, make(chan struct{}, maxCopies)} }

// Paths returns the handlers by pattern.
func (ps *Pods) Paths() map[string]http.HandlerFunc {
	paths := map[string]http.HandlerFunc{
		"GET " + api.PathPods:                                  ps.watchPods,
		"POST " + api.PathPods:                                 response.JSON(ps.applyManifest),
		"DELETE " + api.PathPods:                               response.JSON(ps.deleteManifest),
		"DELETE " + api.PathPods + "/{namespace}/{name}":       response.JSON(ps.deletePod),
		"POST " + api.PathPods + "/{namespace}/{name}/restart": ps.restartPod,
		"POST " + api.PathPods + "/{namespace}/{name}/debug":   response.JSON(ps.debugPod),

		"GET " + api.PathDetails + "/{uid}":                        response.JSON(ps.getDetails),
		"GET " + api.PathOrigins:                                   response.JSON(ps.origins),
		"GET " + api.PathProcesses + "/{namespace}/{pod}":          response.JSON(ps.processes),
		"GET " + api.PathFiles + "/{namespace}/{pod}/{container}":  ps.readFiles,
		"POST " + api.PathFiles + "/{namespace}/{pod}/{container}": ps.writeFiles,
	}
	if ps.Objects != nil {
		paths["GET "+api.PathObjects] = response.JSON(ps.listObjects)
		paths["DELETE "+api.PathObjects+"/{kind}/{namespace}/{name}"] = response.JSON(ps.deleteObject)
	}
	return paths
}
