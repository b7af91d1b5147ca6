package ctrd

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandbox lists the sandboxes that match a filter, the newest first.
func (r *Runtime) ListPodSandbox(_ context.Context, req *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	f := req.GetFilter()
	out := &api.ListPodSandboxResponse{}
	r.mu.Lock()
	defer r.mu.Unlock()
	want := expandID(r.sandboxes, f.GetId())
	for id, s := range r.podSandboxes.findCandidates(r.sandboxes, f.GetLabelSelector()) {
		if !idMatches(id, want) || f.GetState() != nil && f.GetState().GetState() != s.state() ||
			!matchLabels(s.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		cfg := proto.CloneOf(&api.PodSandboxConfig{
			Metadata: s.config.GetMetadata(), Labels: s.config.GetLabels(), Annotations: s.config.GetAnnotations(),
		})
		out.Items = append(out.Items, &api.PodSandbox{
			Id: id, Metadata: cfg.GetMetadata(), State: s.state(), CreatedAt: unixNanos(s.rec.CreatedAt),
			Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(), RuntimeHandler: s.rec.Handler,
		})
	}
	slices.SortFunc(out.Items, func(a, b *api.PodSandbox) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.Id, b.Id))
	})
	return out, nil
}
