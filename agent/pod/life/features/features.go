package features

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime reports the features of its handlers.
type Runtime interface {
	Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error)
}

// Classes returns the handler of a pod's RuntimeClass; "" is the runtime's default.
type Classes interface {
	RuntimeHandler(pod *v1.Pod) (string, error)
}

// ClassIsHandler is the Classes of a node without an API server, which has no RuntimeClass objects.
type ClassIsHandler struct{}

// RuntimeHandler returns the name of the pod's RuntimeClass.
func (ClassIsHandler) RuntimeHandler(pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil {
		return "", nil
	}
	return *pod.Spec.RuntimeClassName, nil
}

// Handlers are the handlers of a runtime.
type Handlers struct {
	Runtime Runtime
	Classes Classes
}

// Of returns the handler of a pod and its features. It calls the runtime each time, whose programs may have been replaced.
// For a runtime that lists no handlers it returns no features.
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

// askTime bounds the call of the runtime.
const askTime = 10 * time.Second

// ReadOnlyTrees reports whether mounts of a pod can be read-only recursively.
func (h Handlers) ReadOnlyTrees(pod *v1.Pod) bool {
	ctx, stop := context.WithTimeout(context.Background(), askTime)
	defer stop()
	_, can, err := h.Of(ctx, pod)
	return err == nil && can.GetRecursiveReadOnlyMounts()
}
