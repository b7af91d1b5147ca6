package stream

import (
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// TestFrameBombs checks control frames that are too long, or too large when decompressed. The session ends before such a frame is
// decompressed.
func TestFrameBombs(t *testing.T) {
	r, _, _ := start(t)
	sessions := map[string]func() (string, error){
		"exec": func() (string, error) {
			resp, err := r.Exec(t.Context(), &api.ExecRequest{ContainerId: "c", Cmd: []string{"cat"}, Stdin: true, Stdout: true})
			return resp.GetUrl(), err
		},
		"attach": func() (string, error) {
			resp, err := r.Attach(t.Context(), &api.AttachRequest{ContainerId: "c", Stdout: true})
			return resp.GetUrl(), err
		},
		"port-forward": func() (string, error) {
			resp, err := r.PortForward(t.Context(), &api.PortForwardRequest{PodSandboxId: "s", Port: []int32{80}})
			return resp.GetUrl(), err
		},
	}
	for name, url := range sessions {
		t.Run(name, func(t *testing.T) {
			protocol := "v4.channel.k8s.io"
			if name == "port-forward" {
				protocol = "portforward.k8s.io"
			}
			at, err := url()
			if err != nil {
				t.Fatal(err)
			}
			streamtest.Bombs(t, "tcp", parse(t, at).Host, protocol, func() string {
				at, err := url()
				if err != nil {
					t.Fatal(err)
				}
				return parse(t, at).Path
			})
		})
	}
}
