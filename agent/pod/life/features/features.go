package features

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime says what its handlers can.
type Runtime interface {
	Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error)
}

// Classes finds the handler of a pod's RuntimeClass; "" is the runtime's own.
type Classes interface {
	RuntimeHandler(pod *v1.Pod) (string, error)
}

// ClassIsHandler is for a node without an API server, which has no RuntimeClasses.
type ClassIsHandler struct{}

// RuntimeHandler is the class's name.
func (ClassIsHandler) RuntimeHandler(pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil {
		return "", nil
	}
	return *pod.Spec.RuntimeClassName, nil
}

// Handlers are those of a runtime.
type Handlers struct {
	Runtime Runtime
	Classes Classes
}

// Of asks the runtime anew each time: its programs may have been replaced. A runtime that
// says nothing of handlers can nothing special.
func (h Handlers) Of(ctx context.Context, pod *v1.Pod) (handler string, can *api.RuntimeHandlerFeatures, err error) {
	if handler, err = h.Classes.RuntimeHandler(pod); err != nil {
		return "", nil, err
	}
	st, err := h.Runtime.Status(ctx, &api.StatusRequest{})
	if err != nil {
		return handler, nil, fmt.Errorf("ask the runtime for its handlers: %w", err)
	}
	for _, r := range st.GetRuntimeHandlers() {
		if r.GetName() == handler {
			return handler, r.GetFeatures(), nil
		}
	}
	if len(st.GetRuntimeHandlers()) == 0 {
		return handler, nil, nil
	}
	return handler, nil, fmt.Errorf("the handler %q is not known", handler)
}

// askTime bounds asking the runtime.
const askTime = 10 * time.Second

// ReadOnlyTrees says whether a pod's mounts can be read-only with all below them.
func (h Handlers) ReadOnlyTrees(pod *v1.Pod) bool {
	ctx, stop := context.WithTimeout(context.Background(), askTime)
	defer stop()
	_, can, err := h.Of(ctx, pod)
	return err == nil && can.GetRecursiveReadOnlyMounts()
}
