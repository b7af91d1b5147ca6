package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/runtime/cri"
)

// serveExec serves /exec/NAMESPACE/POD[/UID]/CONTAINER.
func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		response.WriteError(w, response.Refuse(http.StatusBadRequest, "exec needs a command"))
		return
	}
	s.connectProcess(w, r, command, func(id string, o *remotecommand.Options) (string, error) {
		resp, err := s.Runtime.Exec(r.Context(), &api.ExecRequest{ContainerId: id, Cmd: command,
			Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
		return resp.GetUrl(), err
	})
}

// serveAttach serves /attach/NAMESPACE/POD[/UID]/CONTAINER.
func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request) {
	s.connectProcess(w, r, nil, func(id string, o *remotecommand.Options) (string, error) {
		resp, err := s.Runtime.Attach(r.Context(), &api.AttachRequest{ContainerId: id,
			Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
		return resp.GetUrl(), err
	})
}

// connectProcess connects the client with a process. If the runtime implements cri.Streamer, it does so directly. Otherwise
// it calls the function ask, which requests a URL from the runtime. It then forwards the client's request to this URL.
func (s *Server) connectProcess(w http.ResponseWriter, r *http.Request, command []string,
	ask func(string, *remotecommand.Options) (string, error)) {
	r.Body = http.NoBody // do not parse the body as a form
	id, err := s.findRunning(r)
	if err != nil {
		response.WriteError(w, err)
		return
	}
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		response.WriteError(w, response.Refuse(http.StatusBadRequest, "%v", err))
		return
	}
	// A kubelet counts only sessions with this protocol. It forwards sessions with another protocol to the runtime.
	if websocket.IsWebSocketUpgrade(r) && slices.Contains(websocket.Subprotocols(r), remotecommand.StreamProtocolV5Name) {
		what := "exec"
		if command == nil {
			what = "attach"
		}
		s.requestCounts.sockets.WithLabelValues(what).Inc()
	}
	streamer, ok := s.Runtime.(cri.Streamer)
	if !ok {
		s.proxyStream(w, r, func() (string, error) { return ask(id, o) })
		return
	}
	p := &process{Streamer: streamer, id: id, command: command, options: *o}
	switch {
	case websocket.IsWebSocketUpgrade(r):
		s.serveChannels(w, r, p)
	case httpstream.IsUpgradeRequest(r):
		s.serveSPDY(w, r, p)
	default:
		response.WriteError(w,
			response.Refuse(http.StatusBadRequest, "Upgrade request required: exec and attach are for SPDY/3.1 or websocket"))
	}
}

// findRunning returns the ID of the container in the request's path. It returns an error if the
// container is not running.
func (s *Server) findRunning(r *http.Request) (string, error) {
	pod, err := s.findPod(r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid")))
	if err != nil {
		return "", err
	}
	name := r.PathValue("container")
	st, err := statusOf(pod, name)
	if err != nil {
		return "", response.Refuse(http.StatusNotFound, "container not found (%q)", name)
	}
	if st.State.Running == nil || st.ContainerID == "" {
		return "", response.Refuse(http.StatusBadRequest, "container not found (%q): it is not running: %s", name, stateText(st.State))
	}
	return bareID(st.ContainerID), nil
}

func stateText(st v1.ContainerState) string {
	switch {
	case st.Terminated != nil:
		return fmt.Sprintf("terminated with exit code %d", st.Terminated.ExitCode)
	case st.Waiting != nil && st.Waiting.Reason != "":
		return "waiting, " + st.Waiting.Reason
	}
	return "waiting"
}

// serveRun serves POST /run/NAMESPACE/POD[/UID]/CONTAINER?cmd=... It runs a command and responds with its output, without
// streams.
func (s *Server) serveRun(w http.ResponseWriter, r *http.Request) {
	id, err := s.findRunning(r)
	if err != nil {
		response.WriteError(w, err)
		return
	}
	resp, err := s.Runtime.ExecSync(r.Context(), &api.ExecSyncRequest{ContainerId: id,
		Cmd: strings.Fields(r.URL.Query().Get("cmd")), Timeout: int64(response.Timeout/time.Second) / 2})
	switch {
	case err != nil:
		response.WriteError(w, err)
	case resp.ExitCode != 0:
		response.WriteError(w, fmt.Errorf("%w: %s%s", cri.ExitError{Code: resp.ExitCode}, resp.Stdout, resp.Stderr))
	default:
		w.Write(append(resp.Stdout, resp.Stderr...))
	}
}

// serveCheckpoint serves POST /checkpoint/NAMESPACE/POD/CONTAINER. The response is that of a kubelet whose runtime does not
// support checkpoints.
func (s *Server) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	pod, err := s.findPod(namespace, name, "")
	if err == nil {
		_, err = statusOf(pod, container)
	}
	if err == nil {
		err = fmt.Errorf("checkpointing of %s/%s/%s failed (this container runtime has no checkpoints)", namespace, name, container)
	}
	response.WriteError(w, err)
}
