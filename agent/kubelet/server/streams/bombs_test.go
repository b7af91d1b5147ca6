package streams_test

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// TestStreamBombs checks that an exec or port-forward session ends when a frame is too long, either compressed or not. The server ends the
// session before it decompresses the frame.
func TestStreamBombs(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for path, protocol := range map[string]string{"/exec/default/web/nginx?command=hang&output=1": "v4.channel.k8s.io", "/portForward/default/web": "portforward.k8s.io"} {
		streamtest.Bombs(t, "unix", n.Socket, protocol, func() string { return path })
	}
	n.Runtime.Streams.Wait()
}
