package server

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/api"
	"github.com/islet-edge/islet/keys"
)

// maxManifest bounds what islet apply may send.
const maxManifest = 8 << 20

// maxIgnored bounds what is read of a manifest that is too large.
const maxIgnored = 64 << 20

// manifest decodes the pods in the body of a request.
func (s *Server) manifest(r *http.Request) ([]*v1.Pod, error) {
	origin := cmp.Or(r.URL.Query().Get("origin"), "manifest")
	data, err := io.ReadAll(io.LimitReader(r.Body, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	if len(data) > maxManifest {
		io.Copy(io.Discard, io.LimitReader(r.Body, maxIgnored)) // a client that still sends reads no answer
		return nil, refuse(http.StatusRequestEntityTooLarge, "%s is larger than a manifest may be, %d MiB", origin, maxManifest>>20)
	}
	pods, err := s.Decode(data, origin)
	if err != nil {
		return nil, refusal{http.StatusUnprocessableEntity, err.Error()}
	}
	if len(pods) == 0 {
		return nil, refuse(http.StatusUnprocessableEntity, "%s has no pod", origin)
	}
	return pods, nil
}

// applyPods makes the pods of a manifest wanted by the local source; with ?dryRun it
// only reports what that would do.
func (s *Server) applyPods(r *http.Request) ([]api.Applied, error) {
	pods, err := s.manifest(r)
	if err != nil {
		return nil, err
	}
	known := s.Pods.List()
	done := make([]api.Applied, 0, len(pods))
	for _, p := range pods {
		action := "created"
		for _, k := range known {
			switch {
			case k.Namespace != p.Namespace || k.Name != p.Name:
			case k.Annotations[keys.ConfigSource] != keys.SourceLocal:
				return nil, refuse(http.StatusConflict, "pod %s/%s exists and comes from the %s source: choose another name",
					p.Namespace, p.Name, k.Annotations[keys.ConfigSource])
			case k.UID == p.UID && k.DeletionTimestamp == nil:
				action = "unchanged"
			case action == "created":
				action = "configured"
			}
		}
		done = append(done, api.Applied{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Action: action, Warnings: s.warnings(p)})
	}
	if r.URL.Query().Has("dryRun") {
		return done, nil
	}
	if err := s.Local.Apply(r.Context(), pods); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	return done, nil
}

// deletePod ends the pod of the local source that the path names.
func (s *Server) deletePod(r *http.Request) (*api.Deleted, error) {
	return s.end(r, r.PathValue("namespace"), r.PathValue("name"))
}

// deleteManifest ends the pods that a manifest names.
func (s *Server) deleteManifest(r *http.Request) ([]api.Deleted, error) {
	pods, err := s.manifest(r)
	if err != nil {
		return nil, err
	}
	var done []api.Deleted
	for _, p := range pods {
		d, err := s.end(r, p.Namespace, p.Name)
		if err != nil {
			d = &api.Deleted{Namespace: p.Namespace, Name: p.Name, Error: err.Error(), NotFound: isNotFound(err)}
		}
		done = append(done, *d)
	}
	return done, nil
}

func (s *Server) end(r *http.Request, namespace, name string) (*api.Deleted, error) {
	pod, err := s.find(namespace, name, "")
	if err != nil {
		return nil, err
	}
	if source := pod.Annotations[keys.ConfigSource]; source != keys.SourceLocal {
		return nil, refuse(http.StatusConflict, "pod %s/%s comes from the %s source: remove its manifest there", namespace, name, source)
	}
	var grace *int64
	if q := r.URL.Query().Get("gracePeriodSeconds"); q != "" {
		n, err := strconv.ParseInt(q, 10, 32)
		if err != nil || n < 0 {
			return nil, refuse(http.StatusBadRequest, "gracePeriodSeconds %q is not a number of seconds", q)
		}
		grace = &n
	}
	if err := s.Local.Delete(r.Context(), pod.UID, grace); err != nil {
		return nil, fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return &api.Deleted{Namespace: namespace, Name: name, UID: pod.UID}, nil
}
