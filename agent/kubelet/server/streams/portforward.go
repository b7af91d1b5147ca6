package streams

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/tunnel"
)

// PortForward serves /portForward/NAMESPACE/POD[/UID].
func (s *Streams) PortForward(w http.ResponseWriter, r *http.Request) {
	r.Body = http.NoBody
	o, err := portforward.NewV4Options(r)
	if err != nil && !tunnel.IsTunnel(r) { // in a tunnel the ports are in the headers of the streams
		response.WriteError(w, response.Refuse(http.StatusBadRequest, "%v", err))
		return
	}
	id, err := s.findSandbox(r)
	if err != nil {
		response.WriteError(w, err)
		return
	}
	if tunnel.IsTunnel(r) {
		s.sockets.WithLabelValues("portforward").Inc()
	}
	streamer, ok := s.Runtime.(cri.Streamer)
	if !ok {
		if o == nil {
			o = &portforward.V4Options{}
		}
		s.proxyStream(w, r, func() (string, error) {
			resp, err := s.Runtime.PortForward(r.Context(), &api.PortForwardRequest{PodSandboxId: id, Port: o.Ports})
			return resp.GetUrl(), err
		})
		return
	}
	spdy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.upgradeSPDY(w, r, portforward.SupportedProtocols, func(m *muxedConn, _ string) { m.forwardPorts(streamer, id) })
	})
	if tunnel.IsTunnel(r) {
		tunnel.Serve(w, r, spdy)
		return
	}
	if !websocket.IsWebSocketUpgrade(r) {
		spdy(w, r)
		return
	}
	w, r, cancel := prepareHijack(w, r, 0, nil)
	defer cancel(nil)
	portforward.ServePortForward(w, r, forwarder{streamer, id, r.Context()}, "", "", o, s.IdleTimeout,
		openTimeout, portforward.SupportedProtocols)
}

// maxForwarded is the maximum number of concurrent connections in one session.
const maxForwarded = 256

// forwardPorts connects streams to ports of the pod until the client disconnects. Each connection has a pair of streams, one for
// data and one for errors.
func (m *muxedConn) forwardPorts(to cri.Streamer, sandbox string) {
	var active sync.WaitGroup
	defer active.Wait()
	half := map[string]httpstream.Stream{} // the first stream of an incomplete pair, by request ID
	slots := make(chan struct{}, maxForwarded)
	for {
		var stream httpstream.Stream
		select {
		case stream = <-m.streams:
		case <-m.ctx.Done():
			return
		}
		request := stream.Headers().Get(portforward.PortForwardRequestIDHeader)
		first := half[request]
		if first == nil {
			if len(half) == maxForwarded {
				return
			}
			half[request] = stream
			continue
		}
		delete(half, request)
		data, failed := first, stream
		if data.Headers().Get(portforward.StreamType) != portforward.StreamTypeData {
			data, failed = failed, data
		}
		select {
		case slots <- struct{}{}:
		case <-m.ctx.Done():
			return
		}
		active.Go(func() {
			defer func() { <-slots }()
			m.forwardOne(to, sandbox, data, failed)
		})
	}
}

// forwardOne connects one pair of streams to a port.
func (m *muxedConn) forwardOne(to cri.Streamer, sandbox string, data, failed httpstream.Stream) {
	port, err := strconv.ParseUint(data.Headers().Get(portforward.PortHeader), 10, 16)
	if err == nil {
		err = to.Forward(m.ctx, sandbox, int32(port), data)
	}
	if err != nil {
		fmt.Fprintf(failed, "forward port %d: %v", port, err)
		data.Reset()
	}
	data.Close()
	failed.Close()
	m.conn.RemoveStreams(data, failed)
}

// findSandbox returns the ID of the pod's sandbox, which must be ready. The path of the request names the pod.
func (s *Streams) findSandbox(r *http.Request) (string, error) {
	pod, err := podlist.FindOrMirrored(s.Pods.List(), r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid")))
	if err != nil {
		return "", err
	}
	list, err := s.Runtime.ListPodSandbox(r.Context(), &api.ListPodSandboxRequest{Filter: &api.PodSandboxFilter{
		LabelSelector: map[string]string{keys.PodUID: string(pod.UID)},
		State:         &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY}}})
	if err != nil {
		return "", fmt.Errorf("list sandboxes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if len(list.Items) == 0 {
		return "", response.Refuse(http.StatusBadRequest, "pod %s/%s is not running", pod.Namespace, pod.Name)
	}
	return list.Items[0].Id, nil
}

// A forwarder implements portforward.PortForwarder for one sandbox. It uses the context of the connection, because the
// context that the library passes to it never ends.
type forwarder struct {
	cri.Streamer
	id  string
	ctx context.Context
}

func (f forwarder) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	return f.Forward(f.ctx, f.id, port, stream)
}
