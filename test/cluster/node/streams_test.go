package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// TestStreams checks that slow and pausing clients receive all bytes of commands, attached containers, logs, forwarded ports and archives,
// and the exit code. The clients use SPDY and WebSockets through the API server. A command must end when its client disconnects. A client
// that is too slow for a log must receive a message that lines are missing.
func TestStreams(t *testing.T) {
	c, n, ns := join(t, "--container-log-max-size=1Mi", "--container-log-max-files=2")
	many := 30_000 // number of lines; the API server and the sockets buffer all of them
	if long {
		many = 100_000 // more than the buffers
	}
	s := &streamed{Cluster: c, n: n, ns: ns, many: fmt.Sprint(many), want: numbered(many)}
	manifests := pod(ns, "web", "", "", "serve", ":8080")
	names := []string{"web"}
	for _, by := range transports {
		for name := range paces {
			names = append(names, attachedTo(by, name))
			manifests += pod(ns, attachedTo(by, name), "restartPolicy: Never\n", "stdin: true\nstdinOnce: true", "lines", s.many, "7",
				"await", "read")
		}
	}
	c.Apply(t, manifests)
	c.AwaitReady(t, ns, names...)
	c.Kubectl(t, "-n", ns, "exec", "web", "--", "/podtool", "install", "tar")
	t.Run("paces", func(t *testing.T) {
		for name, read := range paces {
			for _, by := range transports {
				t.Run(name+"/"+by.name, func(t *testing.T) { t.Parallel(); s.transport(t, by, name, read) })
			}
			if long || name == "stops" {
				t.Run(name+"/old WebSocket", func(t *testing.T) { t.Parallel(); s.old(t, read) })
				t.Run(name+"/kubectl", func(t *testing.T) { t.Parallel(); s.kubectl(t, read) })
				t.Run(name+"/logs", func(t *testing.T) { t.Parallel(); s.log(t, name, read) })
			}
		}
		for _, by := range transports {
			t.Run("leaves/"+by.name, func(t *testing.T) { t.Parallel(); s.leave(t, by) })
		}
		t.Run("cp", func(t *testing.T) { t.Parallel(); s.cp(t) })
		if long {
			t.Run("missed", func(t *testing.T) { t.Parallel(); s.missed(t) })
		}
	})
}

var paces = map[string]pace{"slow": slow, "stops": stops}

func attachedTo(by transport, pace string) string {
	return strings.ToLower("attach-" + by.name + "-" + pace)
}

// A streamed contains the cluster and the expected output for the parts of TestStreams.
type streamed struct {
	*cluster.Cluster
	n    *cluster.Node
	ns   string
	many string // number of lines that a command prints
	want []byte // the expected lines
}

// transport checks exec, attach and port-forward over a transport.
func (s *streamed) transport(t *testing.T, by transport, name string, read pace) {
	config := readThrough(t, s.Cluster, read)
	var all sync.WaitGroup
	want := func(what string, wantCode int, want []byte, stdin io.Reader, pod string, args ...string) {
		all.Go(func() {
			out, code, err := command(t.Context(), by, config, s.ns, pod, stdin, args...)
			if err != nil || code != wantCode || !bytes.Equal(out, want) {
				t.Errorf("%s: %d of %d bytes, code %d, want %d, %v", what, len(out), len(want), code, wantCode, err)
			}
		})
	}
	want("exec", 7, s.want, nil, "web", "/podtool", "lines", s.many, "7")
	want("exec that leaves a child behind", 7, s.want, nil, "web", "/podtool", "lines", s.many, "7", "leave")
	want("exec whose input ends", 0, s.want, bytes.NewReader(s.want), "web", "/podtool", "cat")
	want("exec that reads its input last", 7, s.want, bytes.NewReader(s.want), "web", "/podtool", "lines", s.many, "7", "read")
	want("attach", 0, s.want, strings.NewReader("go\n"), attachedTo(by, name))
	all.Go(func() {
		if out, err := s.forwarded(t, by, config); err != nil || !bytes.Equal(out, s.want) {
			t.Errorf("port-forward: %d of %d bytes, %v", len(out), len(s.want), err)
		}
	})
	all.Wait()
}

// old checks exec over a WebSocket subprotocol that the API server forwards without decoding.
func (s *streamed) old(t *testing.T, read pace) {
	out, code, err := command(t.Context(), oldWebSocket, readThrough(t, s.Cluster, read), s.ns, "web", nil, "/podtool", "lines",
		s.many, "7", "leave")
	if err != nil || code != 7 || !bytes.Equal(out, s.want) {
		t.Errorf("%d of %d bytes, code %d, want 7, %v", len(out), len(s.want), code, err)
	}
}

// forwarded returns the lines that a pod serves on a forwarded port.
func (s *streamed) forwarded(t *testing.T, by transport, config *rest.Config) ([]byte, error) {
	u := podURL(config, s.ns, "web", "portforward", nil)
	var d httpstream.Dialer
	rt, up, err := spdy.RoundTripperFor(config)
	d = spdy.NewDialer(up, &http.Client{Transport: rt}, "POST", u)
	if by.name == "WebSocket" {
		d, err = portforward.NewSPDYOverWebsocketDialer(u, config)
	}
	if err != nil {
		return nil, err
	}
	stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, err := portforward.NewOnAddresses(d, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		return nil, err
	}
	defer func() { close(stop); <-done }()
	ports, err := f.GetPorts()
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/lines/%s", ports[0].Local, s.many))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// variables contains the environment variables that select kubectl's transport.
var variables = []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false"}

// kubectl checks kubectl exec. It reads the standard output as slowly as the given pace.
func (s *streamed) kubectl(t *testing.T, read pace) {
	program := cluster.Programs(t) + "/kubectl"
	var all sync.WaitGroup
	for _, variable := range variables {
		all.Go(func() {
			cmd := s.AdminCommand("KUBECONFIG", variable, program, "-n", s.ns, "exec", "web", "--", "/podtool", "lines", s.many, "7", "leave")
			var errs bytes.Buffer
			cmd.Stderr = &errs
			pipe, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Error(err)
				return
			}
			out, readErr := io.ReadAll(read(pipe))
			cmd.Wait() // ProcessState contains the exit code
			if code := cmd.ProcessState.ExitCode(); code != 7 || readErr != nil || !bytes.Equal(out, s.want) {
				t.Errorf("%s: %d of %d bytes, code %d, %v, %s", variable, len(out), len(s.want), code, readErr, errs.Bytes())
			}
		})
	}
	all.Wait()
}

// cp checks that kubectl cp copies a file to a pod and back.
func (s *streamed) cp(t *testing.T) {
	program := cluster.Programs(t) + "/kubectl"
	for i, variable := range variables {
		if i > 0 && !long {
			return
		}
		from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
		if err := os.WriteFile(from, s.want, 0o644); err != nil {
			t.Fatal(err)
		}
		there := fmt.Sprintf("web:/there%d", i)
		for _, args := range [][]string{{from, there}, {there, to}} {
			if out, err := s.RunAsAdmin("KUBECONFIG", append([]string{variable, program, "-n", s.ns, "cp"}, args...)...); err != nil {
				t.Fatalf("%s, cp %v: %v, %s", variable, args, err, out)
			}
		}
		if b, err := os.ReadFile(to); err != nil || !bytes.Equal(b, s.want) {
			t.Errorf("%s: cp returned %d bytes of %d, %v", variable, len(b), len(s.want), err)
		}
	}
}

// leave checks that an endless command ends when its client disconnects.
func (s *streamed) leave(t *testing.T, by transport) {
	ctx, cancel := context.WithCancel(t.Context())
	mark := fmt.Sprintf("/podtool\x00lines\x001000000000\x000\x00%s", by.name)
	first := sync.OnceFunc(cancel)
	config := readThrough(t, s.Cluster, func(r io.Reader) io.Reader { return notify{r, first} })
	if out, _, err := command(ctx, by, config, s.ns, "web", nil, strings.Split(mark, "\x00")...); err == nil {
		t.Errorf("the disconnected command succeeded after %d bytes", len(out))
	}
	s.n.Await("the command to end with its client", func() bool {
		for _, cmd := range s.n.ContainerProcesses() {
			if strings.Contains(strings.ReplaceAll(cmd, "\x00", " "), strings.ReplaceAll(mark, "\x00", " ")) {
				return false
			}
		}
		return true
	})
}

// A notify is a reader that calls a function after its first MiB was read.
type notify struct {
	io.Reader
	then func()
}

func (n notify) WriteTo(w io.Writer) (int64, error) {
	first, err := io.CopyN(w, n.Reader, 1<<20)
	if err != nil {
		return first, err
	}
	n.then()
	rest, err := io.Copy(w, n.Reader)
	return first + rest, err
}

// follow opens the log of a pod and then sends the pod a line of input. The pod writes its log after this line.
func (s *streamed) follow(t *testing.T, name string, config *rest.Config, lines int) io.ReadCloser {
	t.Helper()
	s.Apply(t, pod(s.ns, name, "restartPolicy: Never\n", "stdin: true\nstdinOnce: true", "lines", fmt.Sprint(lines), "7", "await"))
	s.AwaitPod(t, s.ns, name, "to have started", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting == nil
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(podURL(config, s.ns, name, "log", url.Values{"follow": {"true"}}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, b)
	}
	direct := readThrough(t, s.Cluster, func(r io.Reader) io.Reader { return r })
	x, err := transports[0].make(direct, podURL(direct, s.ns, name, "attach", url.Values{"stdin": {"true"}}))
	if err != nil {
		t.Fatal(err)
	}
	if err := x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("go\n")}); err != nil {
		t.Fatal(err)
	}
	return resp.Body
}

// log checks that a followed log is complete. The log is short enough that no line is deleted.
func (s *streamed) log(t *testing.T, name string, read pace) {
	const short = 10_000
	body := s.follow(t, "log-"+name, readThrough(t, s.Cluster, read), short)
	if out, err := io.ReadAll(body); err != nil || !bytes.Equal(out, s.want[:short*100]) {
		t.Errorf("%d of %d bytes, %v", len(out), short*100, err)
	}
}

// missed checks the log of a pod that writes faster than the client reads, so that lines are deleted. The client must receive the lines
// before the first deleted line, and then a message. The API server does not forward the error at the end of the response.
func (s *streamed) missed(t *testing.T) {
	const lines = 600_000
	begun, on := make(chan struct{}), make(chan struct{})
	config := readThrough(t, s.Cluster, func(r io.Reader) io.Reader {
		return notify{r, sync.OnceFunc(func() { close(begun); <-on })}
	})
	body := s.follow(t, "flood", config, lines)
	got := make(chan []byte)
	go func() {
		out, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		got <- out
	}()
	<-begun
	s.AwaitPod(t, s.ns, "flood", "to have ended", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	close(on)
	out := <-got
	whole := len(out) / 100 * 100
	if last := bytes.LastIndexByte(bytes.TrimSuffix(out, []byte("\n")), '\n') + 1; last < len(out) {
		whole = last
	}
	if !bytes.Equal(out[:whole], numbered(whole/100)) || whole/100 >= lines ||
		!strings.HasPrefix(string(out[whole:]), "islet: the log is not complete: the lines that follow were removed") {
		t.Errorf("%d lines, then %q", whole/100, out[whole:])
	}
}
