package server_test

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// TestStreamBombs: the frames of a session of exec or port-forward that unpack to much, or that are
// long, end the session before they are unpacked.
func TestStreamBombs(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for path, protocol := range map[string]string{"/exec/default/web/nginx?command=hang&output=1": "v4.channel.k8s.io", "/portForward/default/web": "portforward.k8s.io"} {
		streamtest.Bombs(t, "unix", n.Socket, protocol, func() string { return path })
	}
	n.Runtime.Streams.Wait()
}
