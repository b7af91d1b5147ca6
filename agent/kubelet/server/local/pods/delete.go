package pods

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
)

// deletePod ends a pod of the local source. The path contains the pod's namespace and name.
func (ps *Pods) deletePod(r *http.Request) (any, error) {
	return ps.endPod(r, r.PathValue("namespace"), r.PathValue("name"))
}

// deleteManifest ends the pods of a manifest and removes its other objects. It does not delete the data of claims.
func (ps *Pods) deleteManifest(r *http.Request) (any, error) {
	m, err := ps.readManifest(r)
	if err != nil {
		return nil, err
	}
	var done []api.Deleted
	for _, p := range m.Pods {
		d, err := ps.endPod(r, p.Namespace, p.Name)
		if err != nil {
			d = &api.Deleted{Namespace: p.Namespace, Name: p.Name, Error: err.Error(), NotFound: response.IsNotFound(err)}
		}
		done = append(done, *d)
	}
	for _, o := range m.Objects {
		done = append(done, ps.Objects.Delete(r.Context(), o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName(), false))
	}
	return done, nil
}

// listObjects returns the objects from the node's manifests.
func (ps *Pods) listObjects(*http.Request) (any, error) { return ps.Objects.List(), nil }

// deleteObject removes an applied object. With ?data it also deletes the data of a claim.
func (ps *Pods) deleteObject(r *http.Request) (any, error) {
	d := ps.Objects.Delete(r.Context(), r.PathValue("kind"), r.PathValue("namespace"), r.PathValue("name"), r.URL.Query().Has("data"))
	switch {
	case d.NotFound:
		return nil, response.Refusal{Code: http.StatusNotFound, Message: d.Error}
	case d.Error != "":
		return nil, response.Refusal{Code: http.StatusConflict, Message: d.Error}
	}
	return &d, nil
}

func (ps *Pods) endPod(r *http.Request, namespace, name string) (*api.Deleted, error) {
	pod, err := podlist.Find(ps.Lister.List(), namespace, name, "")
	if err != nil {
		return nil, err
	}
	if source := pod.Annotations[keys.ConfigSource]; source != keys.SourceLocal {
		return nil, response.Refuse(http.StatusConflict, "pod %s/%s comes from the %s source: remove its manifest there", namespace,
			name, source)
	}
	var grace *int64
	if q := r.URL.Query().Get("gracePeriodSeconds"); q != "" {
		n, err := strconv.ParseInt(q, 10, 32)
		if err != nil || n < 0 {
			return nil, response.Refuse(http.StatusBadRequest, "gracePeriodSeconds %q is not a number of seconds", q)
		}
		grace = &n
	}
	if err := ps.Local.Delete(r.Context(), pod.UID, grace); err != nil {
		return nil, fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return &api.Deleted{Namespace: namespace, Name: name, UID: pod.UID}, nil
}
