package server

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
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
func (s *Server) readManifest(r *http.Request) (m manifest.Set, err error) {
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
	m, err = s.Decode(data, origin)
	switch {
	case err != nil:
		return m, response.Refusal{Code: http.StatusUnprocessableEntity, Message: err.Error()}
	case len(m.Pods)+len(m.Objects) == 0:
		return m, response.Refuse(http.StatusUnprocessableEntity, "%s contains no pod and no object that pods use", origin)
	case len(m.Objects) > 0 && s.Objects == nil:
		return m, response.Refuse(http.StatusUnprocessableEntity, "%s contains objects other than pods, which this node does not support",
			origin)
	}
	return m, nil
}

// applyManifest adds the pods and objects of a manifest to the local source. With ?dryRun it only reports the changes, and the pods
// that the node would reject.
// Objects are applied before pods, because pods may use them.
func (s *Server) applyManifest(r *http.Request) (any, error) {
	m, err := s.readManifest(r)
	if err != nil {
		return nil, err
	}
	pods, err := s.wouldApply(m.Pods)
	if err != nil {
		return nil, err
	}
	dry := r.URL.Query().Has("dryRun")
	var done []api.Applied
	if len(m.Objects) > 0 {
		if done, err = s.Objects.Apply(r.Context(), m.Objects, dry); err != nil {
			return nil, response.Refusal{Code: http.StatusConflict, Message: "apply: " + err.Error()}
		}
	}
	if dry && s.FindRejections != nil {
		for i, reason := range s.FindRejections(m.Pods) {
			pods[i].Rejection = reason
		}
	}
	done = append(done, pods...)
	if dry || len(m.Pods) == 0 {
		return done, nil
	}
	if err := s.Local.Apply(r.Context(), m.Pods); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	return done, nil
}

// wouldApply returns the changes that applying the pods would make. It returns an error if one of the pods
// has the same name as a pod of another source.
func (s *Server) wouldApply(pods []*v1.Pod) ([]api.Applied, error) {
	known := s.Pods.List()
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
		done = append(done, api.Applied{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Action: action, Warnings: s.podWarnings(p)})
	}
	return done, nil
}

// deletePod ends a pod of the local source. The path contains the pod's namespace and name.
func (s *Server) deletePod(r *http.Request) (any, error) {
	return s.endPod(r, r.PathValue("namespace"), r.PathValue("name"))
}

// deleteManifest ends the pods of a manifest and removes its other objects. It does not delete the data of claims.
func (s *Server) deleteManifest(r *http.Request) (any, error) {
	m, err := s.readManifest(r)
	if err != nil {
		return nil, err
	}
	var done []api.Deleted
	for _, p := range m.Pods {
		d, err := s.endPod(r, p.Namespace, p.Name)
		if err != nil {
			d = &api.Deleted{Namespace: p.Namespace, Name: p.Name, Error: err.Error(), NotFound: response.IsNotFound(err)}
		}
		done = append(done, *d)
	}
	for _, o := range m.Objects {
		done = append(done, s.Objects.Delete(r.Context(), o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName(), false))
	}
	return done, nil
}

// listObjects returns the objects from the node's manifests.
func (s *Server) listObjects(*http.Request) (any, error) { return s.Objects.List(), nil }

// deleteObject removes an applied object. With ?data it also deletes the data of a claim.
func (s *Server) deleteObject(r *http.Request) (any, error) {
	d := s.Objects.Delete(r.Context(), r.PathValue("kind"), r.PathValue("namespace"), r.PathValue("name"), r.URL.Query().Has("data"))
	switch {
	case d.NotFound:
		return nil, response.Refusal{Code: http.StatusNotFound, Message: d.Error}
	case d.Error != "":
		return nil, response.Refusal{Code: http.StatusConflict, Message: d.Error}
	}
	return &d, nil
}

func (s *Server) endPod(r *http.Request, namespace, name string) (*api.Deleted, error) {
	pod, err := podlist.Find(s.Pods.List(), namespace, name, "")
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
	if err := s.Local.Delete(r.Context(), pod.UID, grace); err != nil {
		return nil, fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return &api.Deleted{Namespace: namespace, Name: name, UID: pod.UID}, nil
}
