package pods

import (
	"cmp"
	"errors"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// debugPod adds an ephemeral container to a pod, for islet debug. The query has its settings. In a cluster the API server adds ephemeral
// containers, so debugPod refuses it there.
func (ps *Pods) debugPod(r *http.Request) (any, error) {
	pod, err := podlist.Find(ps.Lister.List(), r.PathValue("namespace"), r.PathValue("name"), "")
	if err != nil {
		return nil, err
	}
	name := pod.Namespace + "/" + pod.Name
	switch {
	case pod.Annotations[keys.ConfigSource] == keys.SourceAPI || ps.hasCluster(r):
		return nil, response.Refuse(http.StatusConflict, "pod %s is on a node of a cluster: use kubectl debug", name)
	case podlist.IsEnding(pod):
		return nil, response.Refuse(http.StatusConflict, "pod %s has ended or is being deleted", name)
	}
	q := r.URL.Query()
	c := v1.EphemeralContainer{TargetContainerName: q.Get("target"), EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: cmp.Or(q.Get("container"), "debugger-"+rand.String(5)), Image: q.Get("image"), Command: q["command"],
		ImagePullPolicy: v1.PullPolicy(q.Get("pullPolicy")), Stdin: q.Has("stdin"), TTY: q.Has("tty"),
		// The end of piped input must reach the program. Without StdinOnce, the end of the input would end only the connection. A
		// terminal has no StdinOnce, so that it may be attached again.
		StdinOnce: q.Has("stdin") && !q.Has("tty"),
	}}
	if err := podspec.CheckImage(c.Image); err != nil { // an ephemeral container cannot be removed
		return nil, response.Refuse(http.StatusUnprocessableEntity, "debug pod %s: image %q %v", name, c.Image, err)
	}
	err = ps.Local.AddEphemeral(r.Context(), pod.UID, func(p *v1.Pod) (*v1.Pod, error) { return manifest.AddEphemeral(p, c) })
	switch {
	case errors.Is(err, desired.ErrNotFound), errors.Is(err, desired.ErrEnding), errors.Is(err, desired.ErrForeign):
		return nil, response.Refuse(http.StatusConflict, "debug pod %s: %v", name, err)
	case err != nil:
		return nil, response.Refuse(http.StatusUnprocessableEntity, "debug pod %s: %v", name, err)
	}
	return &api.Debugged{Container: c.Name}, nil
}

// hasCluster reports whether the node belongs to a cluster.
func (ps *Pods) hasCluster(r *http.Request) bool {
	var st api.Status
	if ps.Describe != nil {
		ps.Describe(r.Context(), &st)
	}
	return st.Cluster != nil
}
