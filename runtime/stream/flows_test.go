package stream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// payload contains the output of a sender's commands and containers.
var payload = bytes.Repeat([]byte("0123456789abcdef"), 512<<10/16)

const portSends, portFloods = 81, 82

// A sender is a runtime whose commands, containers and ports send payload. The command "give CODE" exits with CODE. The container "flood"
// and the port portFloods send until the client disconnects.
type sender struct {
	cri.Runtime
	begun chan struct{}
	going *sync.WaitGroup // running streams
}

func newSender() sender { return sender{begun: make(chan struct{}, 1), going: &sync.WaitGroup{}} }

func (sender) PodSandboxStatus(ctx context.Context, req *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	return echo{}.PodSandboxStatus(ctx, req)
}

func (sender) ContainerStatus(ctx context.Context, req *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return echo{}.ContainerStatus(ctx, req)
}

func (g sender) Stream(ctx context.Context, id string, o cri.ExecOptions) error {
	g.going.Add(1)
	defer g.going.Done()
	code := 0
	switch {
	case id == "flood":
		return g.flood(ctx, o.Stdout)
	case len(o.Command) > 1:
		fmt.Sscan(o.Command[1], &code)
	}
	if _, err := o.Stdout.Write(payload); err != nil || code == 0 {
		return err
	}
	return cri.ExitError{Code: int32(code)}
}

func (g sender) flood(ctx context.Context, to io.Writer) (err error) {
	g.begun <- struct{}{}
	for err == nil && ctx.Err() == nil {
		_, err = to.Write(payload)
	}
	return err
}

func (g sender) Forward(ctx context.Context, _ string, port int32, s io.ReadWriteCloser) error {
	g.going.Add(1)
	defer g.going.Done()
	defer s.Close()
	if port == portFloods {
		return g.flood(ctx, s)
	}
	_, err := s.Write(payload)
	return err
}

// A flow is a client of exec, attach or port-forward. Its function returns the URL of a new stream.
type flow struct {
	streamtest.Way
	path func(r *Runtime) (string, error)
	code int
}

// flows returns a flow for each client. If flood is true, the stream sends until its client disconnects. Otherwise it sends payload.
func flows(flood bool) (all []flow) {
	id := map[bool]string{false: "c", true: "flood"}[flood]
	port := map[bool]int{false: portSends, true: portFloods}[flood]
	for _, w := range streamtest.Commands("v4.channel.k8s.io") {
		f := flow{Way: w}
		if w.Coded {
			f.code = 7
		}
		f.Name = "exec by " + w.Name
		f.path = func(r *Runtime) (string, error) {
			resp, err := r.Exec(context.Background(), &api.ExecRequest{ContainerId: id, Cmd: []string{"give", fmt.Sprint(f.code)}, Stdout: true, Stderr: true})
			return resp.GetUrl(), err
		}
		all = append(all, f)
		a := flow{Way: w}
		a.Name = "attach by " + w.Name
		a.path = func(r *Runtime) (string, error) {
			resp, err := r.Attach(context.Background(), &api.AttachRequest{ContainerId: id, Stdout: true, Stderr: true})
			return resp.GetUrl(), err
		}
		all = append(all, a)
	}
	for _, w := range streamtest.Ports(port) {
		f := flow{Way: w}
		f.Name = "port-forward by " + w.Name
		f.path = func(r *Runtime) (string, error) {
			resp, err := r.PortForward(context.Background(), &api.PortForwardRequest{PodSandboxId: "s", Port: []int32{int32(port)}})
			return resp.GetUrl() + fmt.Sprintf("?port=%d", port), err
		}
		all = append(all, f)
	}
	return all
}

// TestFlows checks all protocols. A client that reads slowly or pauses receives every byte and the exit code. If a client disconnects, its
// stream ends without a success status.
func TestFlows(t *testing.T) {
	for name, read := range map[string]streamtest.Reader{"slow": streamtest.ForwardSlowly, "stops": streamtest.ForwardWithPause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serveSender(t, newSender())
			var all sync.WaitGroup
			for _, f := range flows(false) {
				c, path := f.client(t, r, read)
				all.Go(func() {
					if out, code, err := f.Get(t.Context(), c, path); err != nil || code != f.code || !bytes.Equal(out, payload) {
						t.Errorf("%s: %d of %d bytes, code %d, want %d, %v", f.Name, len(out), len(payload), code, f.code, err)
					}
				})
			}
			all.Wait()
		})
	}
	t.Run("closes", func(t *testing.T) {
		t.Parallel()
		for _, f := range flows(true) {
			g := newSender()
			c, path := f.client(t, serveSender(t, g), streamtest.ForwardThenClose)
			out, code, err := f.Get(t.Context(), c, path)
			if err == nil && !f.Blind {
				t.Errorf("%s: a success after %d bytes, with code %d", f.Name, len(out), code)
			}
			<-g.begun
			ended := make(chan struct{})
			go func() { g.going.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Errorf("%s: the stream did not end", f.Name)
			}
		}
	})
}

func serveSender(t *testing.T, g sender) *Runtime {
	t.Helper()
	r, err := Wrap(g, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

// client returns a client and the path of a new stream. The client connects through a link. The given Reader forwards the server's data on
// this link.
func (f flow) client(t *testing.T, r *Runtime, read streamtest.Reader) (c *streamtest.Client, path string) {
	t.Helper()
	at, err := f.path(r)
	if err != nil {
		t.Fatal(err)
	}
	host, path, _ := strings.Cut(strings.TrimPrefix(at, "http://"), "/")
	return &streamtest.Client{Config: &rest.Config{Host: "http://" + streamtest.Link(t.Context(), t, host, read)}}, "/" + path
}
