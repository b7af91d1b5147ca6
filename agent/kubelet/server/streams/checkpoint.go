package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// Checkpoint serves POST /checkpoint/NAMESPACE/POD/CONTAINER?timeout=SECONDS. The runtime writes the state of the container to an
// archive, and the response contains the path of the archive. As with a kubelet, every failure of the runtime has the status
// code 500.
func (s *Streams) Checkpoint(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	pod, err := podlist.FindOrMirrored(s.Pods.List(), namespace, name, "")
	if err == nil {
		_, err = podlist.FindStatus(pod, container)
	}
	if err != nil {
		response.WriteError(w, err)
		return
	}
	var timeout int64
	if values := r.URL.Query()["timeout"]; len(values) > 0 {
		if timeout, err = strconv.ParseInt(values[len(values)-1], 10, 64); err != nil {
			response.WriteError(w, response.Refuse(http.StatusNotFound, "cannot parse value of timeout parameter"))
			return
		}
	}
	out := response.NewStream(w, "", s.IdleTimeout) // a checkpoint may take longer than a request
	path, err := s.checkpoint(r, name+"_"+namespace+"-"+container, timeout)
	if err != nil {
		http.Error(w, fmt.Sprintf("checkpointing of %s/%s/%s failed (%v)", namespace, name, container, err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(out).Encode(map[string][]string{"items": {path}}) // an error means that the client has disconnected
}

// maxTimeout is the maximum timeout that a time.Duration can contain, in seconds.
const maxTimeout = int64(math.MaxInt64 / time.Second)

// checkpoint makes the runtime write a checkpoint of the container in the request's path, and returns the path of the archive. Only root
// may read the archive, because it contains the memory of the container. As with a kubelet, the timeout in seconds is at least
// CheckpointTimeout.
func (s *Streams) checkpoint(r *http.Request, name string, timeout int64) (string, error) {
	id, err := podlist.FindRunning(s.Pods.List(), s.Runtime, r)
	if err != nil {
		return "", err
	}
	if timeout < 0 {
		return "", errors.New("the timeout is negative")
	}
	limit := max(time.Duration(min(timeout, maxTimeout))*time.Second, s.CheckpointTimeout)
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	if err := os.MkdirAll(s.CheckpointsDir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(s.CheckpointsDir, "checkpoint-"+name+"-"+time.Now().Format(time.RFC3339)+".tar")
	_, err = s.Runtime.CheckpointContainer(ctx, &api.CheckpointContainerRequest{
		ContainerId: id, Location: path, Timeout: int64(limit / time.Second),
	})
	return path, err
}
