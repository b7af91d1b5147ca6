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

// Classes returns the handler of a pod's RuntimeClass. The empty name stands for the runtime's default handler.
type Classes interface {
	RuntimeHandler(pod *v1.Pod) (string, error)
}

// ClassIsHandler implements Classes on a node without an API server. Such a node has no RuntimeClass objects, so the
// name of the class is used as the name of the handler.
type ClassIsHandler struct{}

// RuntimeHandler returns the name of the pod's RuntimeClass.
func (ClassIsHandler) RuntimeHandler(pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil {
		return "", nil
	}
	return *pod.Spec.RuntimeClassName, nil
}

// Handlers finds the runtime handlers of pods.
type Handlers struct {
	Runtime Runtime
	Classes Classes
}

// ForPod returns the name of a pod's runtime handler and the features of this handler. It calls the runtime
// each time, because the handler's program may have been replaced. The features are nil if the runtime
// lists no handlers at all.
func (h Handlers) ForPod(ctx context.Context, pod *v1.Pod) (handler string, can *api.RuntimeHandlerFeatures, err error) {
	if handler, err = h.Classes.RuntimeHandler(pod); err != nil {
		return "", nil, err
	}
	st, err := h.Runtime.Status(ctx, &api.StatusRequest{})
	if err != nil {
		return handler, nil, fmt.Errorf("get the runtime's handlers: %w", err)
	}
	for _, r := range st.GetRuntimeHandlers() {
		if r.GetName() == handler {
			return handler, r.GetFeatures(), nil
		}
	}
	if len(st.GetRuntimeHandlers()) == 0 {
		return handler, nil, nil
	}
	return handler, nil, fmt.Errorf("the runtime has no handler %q", handler)
}

// statusTimeout is the timeout of the call to the runtime.
const statusTimeout = 10 * time.Second

// ReadOnlyTrees reports whether the handler of the pod supports recursive read-only mounts. It returns false on an error.
func (h Handlers) ReadOnlyTrees(pod *v1.Pod) bool {
	ctx, stop := context.WithTimeout(context.Background(), statusTimeout)
	defer stop()
	_, can, err := h.ForPod(ctx, pod)
	return err == nil && can.GetRecursiveReadOnlyMounts()
}
