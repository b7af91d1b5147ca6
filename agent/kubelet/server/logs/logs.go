package logs

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pods returns the pods of this node.
type Pods interface {
	List() []*v1.Pod
}

// Runtime reports the path of a container's log. cri.Runtime implements it.
type Runtime interface {
	ContainerStatus(context.Context, *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error)
}

// Config configures Logs.
type Config struct {
	Pods        Pods
	Runtime     Runtime
	Dir         string        // directory of the pods' logs, for containers that the runtime has removed
	SystemDir   string        // directory of the host's logs
	IdleTimeout time.Duration // timeout of a write to a client
}

// Logs serves logs.
type Logs struct{ Config }

// New returns Logs.
func New(c Config) *Logs { return &Logs{c} }
