package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/logs"
	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// Container serves /containerLogs/NAMESPACE/POD/CONTAINER with the options of v1.PodLogOptions.
func (l *Logs) Container(w http.ResponseWriter, r *http.Request) {
	o, previous, err := logOptions(r.URL.Query(), time.Now())
	if err != nil {
		response.WriteError(w, err)
		return
	}
	pod, err := podlist.Find(l.Pods.List(), r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		response.WriteError(w, err)
		return
	}
	id, attempt, err := loggedContainer(pod, r.PathValue("container"), previous)
	if err != nil {
		response.WriteError(w, err)
		return
	}
	path, err := l.findPath(r.Context(), pod, r.PathValue("container"), id, attempt)
	if err != nil {
		response.WriteError(w, err)
		return
	}
	out := response.NewStream(w, "text/plain; charset=utf-8", l.IdleTimeout)
	err = logs.Read(r.Context(), path, o, func(ctx context.Context) bool { return l.hasExited(ctx, id) }, out)
	switch {
	case err == nil:
	case out.HasBegun():
		out.BreakOff(r, o.Timestamps, err)
	case errors.Is(err, fs.ErrNotExist):
		response.WriteError(w,
			response.Refuse(http.StatusNotFound, "container %s of pod %s/%s has no log: %v", r.PathValue("container"), pod.Namespace,
				pod.Name, err))
	default:
		response.WriteError(w, err)
	}
}

func logOptions(q url.Values, now time.Time) (o logs.Options, previous bool, err error) {
	o.Tail = -1
	parse := func(name string, least int64, set func(int64)) {
		if v := q.Get(name); v != "" && err == nil {
			n, perr := strconv.ParseInt(v, 10, 64)
			switch {
			case perr != nil:
				err = response.Refuse(http.StatusBadRequest, "%s %q: must be a number", name, v)
			case n < least:
				err = response.Refuse(http.StatusUnprocessableEntity, "%s %q: must be at least %d", name, v, least)
			default:
				set(n)
			}
		}
	}
	flag := func(name string) (b bool) {
		if v, ok := q[name]; ok && err == nil && v[0] != "" {
			if b, err = strconv.ParseBool(v[0]); err != nil {
				err = response.Refuse(http.StatusBadRequest, "%s %q: must be true or false", name, v[0])
			}
		}
		return b
	}
	o.Follow, o.Timestamps, previous = flag("follow"), flag("timestamps"), flag("previous")
	if v := q.Get("tail"); v != "" && v != "all" { // tail is the old name of tailLines
		q.Set("tailLines", v)
	}
	parse("tailLines", 0, func(n int64) { o.Tail = n })
	parse("limitBytes", 1, func(n int64) { o.LimitBytes = n })
	parse("sinceSeconds", 1, func(n int64) { o.Since = now.Add(-time.Duration(min(n, 1<<33)) * time.Second) })
	if v := q.Get("sinceTime"); v != "" && err == nil {
		if o.Since, err = time.Parse(time.RFC3339Nano, v); err != nil {
			err = response.Refuse(http.StatusBadRequest, "sinceTime %q: must have the format of 2006-01-02T15:04:05Z", v)
		}
		if q.Get("sinceSeconds") != "" {
			err = response.Refuse(http.StatusUnprocessableEntity, "at most one of sinceTime and sinceSeconds may be given")
		}
	}
	switch v := q.Get("stream"); v {
	case "", "All":
	case "Stdout", "Stderr":
		o.Stream = strings.ToLower(v)
	default:
		err = errors.Join(err, response.Refuse(http.StatusUnprocessableEntity, "stream %q: must be All, Stdout or Stderr", v))
	}
	return o, previous, err
}

// loggedContainer returns, from the pod's status, the ID and the attempt of the container whose log is requested.
func loggedContainer(pod *v1.Pod, name string, previous bool) (id string, attempt int32, err error) {
	st, err := podlist.FindStatus(pod, name)
	if err != nil {
		return "", 0, err
	}
	last, lastAttempt := st.LastTerminationState.Terminated, st.RestartCount
	if st.State.Waiting == nil { // otherwise the next attempt is not counted yet
		lastAttempt = max(0, lastAttempt-1)
	}
	if previous {
		if last == nil || last.ContainerID == "" {
			return "", 0, response.Refuse(http.StatusBadRequest, "previous terminated container %q in pod %q not found", name, pod.Name)
		}
		return podlist.BareID(last.ContainerID), lastAttempt, nil
	}
	switch {
	case st.State.Running != nil:
		return podlist.BareID(st.ContainerID), st.RestartCount, nil
	case st.State.Terminated != nil:
		if id := st.State.Terminated.ContainerID; id != "" {
			return podlist.BareID(id), st.RestartCount, nil
		}
		return "", 0, response.Refuse(http.StatusBadRequest, "container %q in pod %q is terminated and its log is not kept", name, pod.Name)
	case last != nil && last.ContainerID != "": // the container is waiting for its restart
		return podlist.BareID(last.ContainerID), lastAttempt, nil
	}
	reason := ""
	if w := st.State.Waiting; w != nil {
		reason = strings.TrimSuffix(fmt.Sprintf(": %s: %s", waitingReason(w.Reason), w.Message), ": ")
	}
	return "", 0, response.Refuse(http.StatusBadRequest, "container %q in pod %q is waiting to start%s", name, pod.Name, reason)
}

// waitingReason returns a kubelet's text for the reason for which a container waits.
func waitingReason(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return reason
}

// findPath returns the path of a container's log, as the runtime reports it. For a container that the runtime has removed,
// it returns the standard path.
func (l *Logs) findPath(ctx context.Context, pod *v1.Pod, container, id string, attempt int32) (string, error) {
	st, err := l.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if path := st.GetStatus().GetLogPath(); err == nil && path != "" {
		return path, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return "", fmt.Errorf("status of container %s: %w", id, err)
	}
	dir := fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID)
	return filepath.Join(l.Dir, dir, container, fmt.Sprintf("%d.log", attempt)), nil
}

// hasExited reports whether a container has exited or was removed, so that its log is complete.
func (l *Logs) hasExited(ctx context.Context, id string) bool {
	st, err := l.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return errdefs.IsNotFound(err)
	}
	return st.GetStatus().GetState() == cri.ContainerState_CONTAINER_EXITED
}
