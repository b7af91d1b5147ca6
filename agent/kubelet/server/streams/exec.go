package streams

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/runtime/cri"
)

// Exec serves /exec/NAMESPACE/POD[/UID]/CONTAINER.
func (s *Streams) Exec(w http.ResponseWriter, r *http.Request) {
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

// Attach serves /attach/NAMESPACE/POD[/UID]/CONTAINER.
func (s *Streams) Attach(w http.ResponseWriter, r *http.Request) {
	s.connectProcess(w, r, nil, func(id string, o *remotecommand.Options) (string, error) {
		resp, err := s.Runtime.Attach(r.Context(), &api.AttachRequest{ContainerId: id,
			Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
		return resp.GetUrl(), err
	})
}

// connectProcess connects the client with a process. If the runtime implements cri.Streamer, it does so directly. Otherwise
// it calls the function ask, which requests a URL from the runtime. It then forwards the client's request to this URL.
func (s *Streams) connectProcess(w http.ResponseWriter, r *http.Request, command []string,
	ask func(string, *remotecommand.Options) (string, error)) {
	r.Body = http.NoBody // do not parse the body as a form
	id, err := podlist.FindRunning(s.Pods.List(), s.Runtime, r)
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
		s.sockets.WithLabelValues(what).Inc()
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

// Run serves POST /run/NAMESPACE/POD[/UID]/CONTAINER?cmd=... It runs a command and responds with its output, without
// streams.
func (s *Streams) Run(w http.ResponseWriter, r *http.Request) {
	id, err := podlist.FindRunning(s.Pods.List(), s.Runtime, r)
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
