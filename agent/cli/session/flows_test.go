package session_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// flowNode returns a node with three containers. The container nginx writes servertest.OutputBytes bytes. The container ended has a log of
// the same length, and has exited. The container flood never stops writing.
func flowNode(t *testing.T) (n *servertest.Node, logged string) {
	n, _ = servertest.Start(t)
	n.Pod("web-pi", now, "nginx", "flood", "ended")
	lines := make([]string, servertest.OutputBytes/64)
	for i := range lines {
		lines[i] = fmt.Sprintf("%08d%s", i, servertest.Bytes(48))
	}
	n.Log(t, "web-pi-ended", lines...)
	n.Log(t, "web-pi-flood", lines...)
	n.Runtime.Exit("web-pi-ended")
	return n, strings.Join(lines, "\n") + "\n"
}

// throughLink returns a copy of the node n with a proxy in front of its socket. The given Reader determines how the proxy reads.
func throughLink(t *testing.T, n *servertest.Node, read streamtest.Reader) *servertest.Node {
	dir, err := os.MkdirTemp("", "islet") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := filepath.Join(dir, "s")
	streamtest.LinkUnix(t, at, n.Socket, read)
	return &servertest.Node{Dir: dir, Socket: at}
}

// A flow is a command that prints the output of a container.
type flow struct {
	args []string
	out  string
	code int
}

func flows(logged string) map[string]flow {
	given := string(servertest.Bytes(servertest.OutputBytes))
	return map[string]flow{
		"exec":    {[]string{"exec", "web", "-c", "nginx", "--", "give", fmt.Sprint(servertest.OutputBytes), "7"}, given, 7},
		"attach":  {[]string{"attach", "web", "-c", "nginx"}, given, 0},
		"logs":    {[]string{"logs", "web", "-c", "ended"}, logged, 0},
		"logs -f": {[]string{"logs", "-f", "web", "-c", "ended"}, logged, 0},
		"logs -f --prefix": {[]string{"logs", "-f", "--prefix", "web", "-c", "ended"},
			strings.ReplaceAll("\n"+strings.TrimSuffix(logged, "\n"), "\n", "\n[pod/web-pi/ended] ")[1:] + "\n", 0},
	}
}

// TestFlows checks that every command receives all bytes and the exit code over a slow or stalling connection to the local socket. If the
// connection breaks, no command reports success.
func TestFlows(t *testing.T) {
	n, logged := flowNode(t)
	var all sync.WaitGroup
	for how, read := range map[string]streamtest.Reader{"slow": streamtest.ForwardSlowly, "stops": streamtest.ForwardWithPause} {
		for name, f := range flows(logged) {
			l := throughLink(t, n, read)
			all.Go(func() {
				if got := run(t, l, "", f.args...); got.Code != f.code || got.Out != f.out {
					t.Errorf("%s, %s: code %d, %d of %d bytes, %s", name, how, got.Code, len(got.Out), len(f.out), got.Err)
				}
			})
		}
	}
	for name, f := range flows(logged) {
		l := throughLink(t, n, streamtest.CloseOnce())
		all.Go(func() {
			got := run(t, l, "", f.args...)
			whole := strings.Contains(name, "-f") // logs -f reconnects and resumes after the last line
			if whole && (got.Code != 0 || got.Out != f.out) || !whole && got.Code != command.ExitUnreachable ||
				!strings.Contains(got.Err, "lost the connection to the agent") {
				t.Errorf("%s, breaks: code %d, %d of %d bytes, %s", name, got.Code, len(got.Out), len(f.out), got.Err)
			}
		})
	}
	all.Wait()
	n.Runtime.Streams.Wait()
}

// A badWriter blocks for a while, or fails, on its first Write.
type badWriter struct {
	got  bytes.Buffer // not embedded, because its other methods must not be used
	once sync.Once
	wait time.Duration
	fail error
}

func (b *badWriter) Write(p []byte) (int, error) {
	b.once.Do(func() { <-time.After(b.wait) })
	if b.fail != nil {
		return 0, b.fail
	}
	return b.got.Write(p)
}

// TestFlowsToReaders checks that a slow reader of a command's standard output receives all bytes, and that the command exits with the
// container's exit code. If a Write to standard output fails, the command exits with an error and the agent ends the stream.
func TestFlowsToReaders(t *testing.T) {
	n, logged := flowNode(t)
	all := flows(logged)
	var done sync.WaitGroup
	for name, f := range all {
		done.Go(func() {
			out, errw := badWriter{wait: 3 * time.Second}, bytes.Buffer{}
			if code := cli.Main(t.Context(), f.args, env(n, nil, &out, &errw)); code != f.code || out.got.String() != f.out {
				t.Errorf("%s, stops: code %d, %d of %d bytes, %s", name, code, out.got.Len(), len(f.out), errw.String())
			}
		})
	}
	all["exec, endless"] = flow{args: []string{"exec", "web", "-c", "flood", "--", "flood"}}
	all["attach, endless"] = flow{args: []string{"attach", "web", "-c", "flood"}}
	all["logs -f, endless"] = flow{args: []string{"logs", "-f", "web", "-c", "flood"}}
	for name, f := range all {
		done.Go(func() {
			out, errw := badWriter{fail: io.ErrClosedPipe}, bytes.Buffer{}
			if code := cli.Main(t.Context(), f.args, env(n, nil, &out, &errw)); code != command.ExitFailed ||
				!strings.Contains(errw.String(), io.ErrClosedPipe.Error()) {
				t.Errorf("%s, closes: code %d, %s", name, code, errw.String())
			}
		})
	}
	done.Wait()
	n.Runtime.Streams.Wait()
}

// TestFlowsOfCopies checks that islet cp copies all bytes in both directions over a slow or stalling connection. It fails if the connection
// breaks or if the container's tar exits early.
func TestFlowsOfCopies(t *testing.T) {
	n, _ := flowNode(t)
	inside := t.TempDir()
	want := servertest.Bytes(servertest.OutputBytes)
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(inside, name), want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for how, read := range map[string]streamtest.Reader{"slow": streamtest.ForwardSlowly, "stops": streamtest.ForwardWithPause, "closes": streamtest.ForwardThenClose} {
		whole := how != "closes"
		l, to := throughLink(t, n, read), filepath.Join(t.TempDir(), "to")
		all.Go(func() {
			got := run(t, l, "", "cp", "web:"+inside, to, "-c", "nginx")
			if (got.Code == 0) != whole || !whole && got.Code != command.ExitUnreachable {
				t.Errorf("from a container, %s: %+v", how, got)
			}
			for _, name := range []string{"one", "two"} {
				if data, err := os.ReadFile(filepath.Join(to, name)); whole && !bytes.Equal(data, want) {
					t.Errorf("from a container, %s: %s has %d of %d bytes, %v", how, name, len(data), len(want), err)
				}
			}
		})
	}
	l, there := throughLink(t, n, streamtest.ForwardSlowly), filepath.Join(t.TempDir(), "there")
	all.Go(func() {
		if got := run(t, l, "", "cp", filepath.Join(inside, "one"), "web:"+there, "-c", "nginx"); got.Code != 0 {
			t.Errorf("to a container: %+v", got)
		}
		if data, err := os.ReadFile(there); !bytes.Equal(data, want) {
			t.Errorf("to a container: %d of %d bytes, %v", len(data), len(want), err)
		}
		if got := run(t, l, "", "cp", inside, "web:/does/not/exist/x", "-c", "nginx"); got.Code != command.ExitFailed ||
			!strings.Contains(got.Err, "tar in container") {
			t.Errorf("tar ends early: %+v", got)
		}
	})
	all.Wait()
	n.Runtime.Streams.Wait()
}

// TestFlowsOfPorts checks that a client of a forwarded port receives all bytes over a slow or stalling connection to the agent. If the
// connection to the agent breaks, the client sees an error instead of a regular end of the data.
func TestFlowsOfPorts(t *testing.T) {
	n, _ := flowNode(t)
	want := servertest.Bytes(servertest.OutputBytes)
	for how, read := range map[string]streamtest.Reader{"slow": streamtest.ForwardSlowly, "stops": streamtest.ForwardWithPause, "closes": streamtest.ForwardThenClose} {
		l := throughLink(t, n, read)
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, w := io.Pipe()
			var errw bytes.Buffer
			ended := make(chan int, 1)
			go func() {
				ended <- cli.Main(ctx, []string{"port-forward", "web", fmt.Sprint(":", servertest.PortGives)}, env(l, nil, w, &errw))
			}()
			line := make([]byte, 256)
			k, _ := r.Read(line)
			m := regexp.MustCompile(`^Forwarding from (\S+) -> `).FindSubmatch(line[:k])
			if m == nil {
				t.Fatalf("printed %q", line[:k])
			}
			c, err := net.Dial("tcp", string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := io.ReadAll(c)
			if whole := how != "closes"; whole && (err != nil || !bytes.Equal(got, want)) || !whole && err == nil {
				t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
			}
			code := command.ExitSignal
			if how == "closes" {
				code = command.ExitUnreachable
			} else {
				cancel()
			}
			if got := <-ended; got != code {
				t.Errorf("code %d, want %d, %s", got, code, errw.String())
			}
		})
	}
}
