package features_test

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/life/features"
)

type runtime struct {
	handlers []*api.RuntimeHandler
	err      error
}

func (r runtime) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	return &api.StatusResponse{RuntimeHandlers: r.handlers}, r.err
}

func TestOf(t *testing.T) {
	can := &api.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}
	both := []*api.RuntimeHandler{{Name: ""}, {Name: "new", Features: can}}
	class := func(name string) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{RuntimeClassName: &name}} }
	for name, c := range map[string]struct {
		r     runtime
		pod   *v1.Pod
		trees bool
		fails bool
	}{
		"the runtime's own":        {runtime{handlers: both}, &v1.Pod{}, false, false},
		"a class":                  {runtime{handlers: both}, class("new"), true, false},
		"not known":                {runtime{handlers: both}, class("old"), false, true},
		"an old runtime":           {runtime{}, class("new"), false, false},
		"a runtime that is broken": {runtime{err: errors.New("broken")}, &v1.Pod{}, false, true},
	} {
		h := features.Handlers{Runtime: c.r, Classes: features.ClassIsHandler{}}
		if _, _, err := h.ForPod(t.Context(), c.pod); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		if got := h.ReadOnlyTrees(c.pod); got != c.trees {
			t.Errorf("%s: read-only trees %v", name, got)
		}
	}
}
