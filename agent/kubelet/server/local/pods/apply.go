package pods

import (
	"cmp"
	"fmt"
	"io"
	"net/http"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
)

// maxManifest is the maximum size of a manifest.
const maxManifest = 8 << 20

// If a manifest is too large, up to maxIgnored bytes after maxManifest are read and discarded.
const maxIgnored = 64 << 20

// readManifest returns the manifest in the body of a request.
func (ps *Pods) readManifest(r *http.Request) (m manifest.Set, err error) {
	origin := cmp.Or(r.URL.Query().Get("origin"), "manifest")
	data, err := io.ReadAll(io.LimitReader(r.Body, maxManifest+1))
	if err != nil {
		return m, fmt.Errorf("read the manifest: %w", err)
	}
	if len(data) > maxManifest {
		io.Copy(io.Discard, io.LimitReader(r.Body, maxIgnored)) // a client that is still sending does not read the response
		return m, response.Refuse(http.StatusRequestEntityTooLarge, "%s is too large: a manifest may have at most %d MiB", origin,
			maxManifest>>20)
	}
	m, err = ps.Decode(data, origin)
	switch {
	case err != nil:
		return m, response.Refusal{Code: http.StatusUnprocessableEntity, Message: err.Error()}
	case len(m.Pods)+len(m.Objects) == 0:
		return m, response.Refuse(http.StatusUnprocessableEntity, "%s contains no pod and no object that pods use", origin)
	case len(m.Objects) > 0 && ps.Objects == nil:
		return m, response.Refuse(http.StatusUnprocessableEntity, "%s contains objects other than pods, which this node does not support",
			origin)
	}
	return m, nil
}

// applyManifest adds the pods and objects of a manifest to the local source. With ?dryRun it only reports the changes, and the pods
// that the node would reject.
// Objects are applied before pods, because pods may use them.
func (ps *Pods) applyManifest(r *http.Request) (any, error) {
	m, err := ps.readManifest(r)
	if err != nil {
		return nil, err
	}
	pods, err := ps.wouldApply(m.Pods)
	if err != nil {
		return nil, err
	}
	dry := r.URL.Query().Has("dryRun")
	var done []api.Applied
	if len(m.Objects) > 0 {
		if done, err = ps.Objects.Apply(r.Context(), m.Objects, dry); err != nil {
			return nil, response.Refusal{Code: http.StatusConflict, Message: "apply: " + err.Error()}
		}
	}
	if dry && ps.FindRejections != nil {
		for i, reason := range ps.FindRejections(m.Pods) {
			pods[i].Rejection = reason
		}
	}
	done = append(done, pods...)
	if dry || len(m.Pods) == 0 {
		return done, nil
	}
	if err := ps.Local.Apply(r.Context(), m.Pods); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	return done, nil
}

// wouldApply returns the changes that applying the pods would make. It returns an error if one of the pods
// has the same name as a pod of another source.
func (ps *Pods) wouldApply(pods []*v1.Pod) ([]api.Applied, error) {
	known := ps.Lister.List()
	done := make([]api.Applied, 0, len(pods))
	for _, p := range pods {
		action := "created"
		for _, k := range known {
			switch {
			case k.Namespace != p.Namespace || k.Name != p.Name:
			case k.Annotations[keys.ConfigSource] != keys.SourceLocal:
				return nil, response.Refuse(http.StatusConflict, "pod %s/%s exists and comes from the %s source: choose another name",
					p.Namespace, p.Name, k.Annotations[keys.ConfigSource])
			case k.UID == p.UID && k.DeletionTimestamp == nil:
				action = "unchanged"
			case action == "created":
				action = "configured"
			}
		}
		done = append(done, api.Applied{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Action: action, Warnings: ps.podWarnings(p)})
	}
	return done, nil
}

// podWarnings returns a sentence about each field of the pod that has no effect on this node.
func (ps *Pods) podWarnings(pod *v1.Pod) (out []string) {
	if ps.IgnoredFields != nil {
		_, out = ps.IgnoredFields(pod)
	}
	return out
}
