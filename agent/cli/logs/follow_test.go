package logs_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// A backgroundFollow is an islet logs -f command that runs in the background.
type backgroundFollow struct {
	t    *testing.T
	n    *servertest.Node
	out  *bufio.Reader
	errw bytes.Buffer
	code chan int
}

func follow(t *testing.T, n *servertest.Node, patience time.Duration, args ...string) *backgroundFollow {
	r, w := io.Pipe()
	f := &backgroundFollow{t: t, n: n, out: bufio.NewReader(r), code: make(chan int, 1)}
	e := env(n, nil, w, &f.errw)
	e.AgentPatience = patience
	go func() {
		f.code <- cli.Main(t.Context(), append([]string{"logs", "-f"}, args...), e)
		w.Close()
	}()
	return f
}

func (f *backgroundFollow) want(lines ...string) {
	f.t.Helper()
	for _, want := range lines {
		if got, err := f.out.ReadString('\n'); err != nil || got != want+"\n" {
			f.t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
}

// This helper waits until the command exits, and checks that it prints no further line.
func (f *backgroundFollow) end(code int, message string) {
	f.t.Helper()
	rest, _ := io.ReadAll(f.out)
	check(f.t, f.n, result{Out: string(rest), Err: f.errw.String(), Code: <-f.code}, code, "", message)
}

// TestFollow checks that islet logs -f continues after restarts of the agent and exits with the container. No line is lost or printed
// twice, even if all lines have the same timestamp.
func TestFollow(t *testing.T) {
	n, stop := startNode(t)
	n.Log(t, "web-pi-nginx", "one", "two", "three")
	f := follow(t, n, 0, "web", "-c", "nginx")
	f.want("one", "two", "three")
	stop()
	n.Log(t, "web-pi-nginx", "four")
	stop = n.Serve(t)
	f.want("four")
	n.Log(t, "web-pi-nginx", "five")
	f.want("five")
	stop()
	n.Log(t, "web-pi-nginx", "six")
	n.Runtime.Exit("web-pi-nginx")
	n.Serve(t)
	f.want("six")
	f.end(0, lost)
}

// TestFollowMissed checks that islet logs -f fails after a restart of the agent if the last printed line is no longer in the log. In this
// case, unprinted lines may be missing too.
func TestFollowMissed(t *testing.T) {
	n, stop := startNode(t)
	n.Log(t, "web-pi-nginx", "one")
	f := follow(t, n, 0, "web", "-c", "nginx")
	f.want("one")
	stop()
	line := "2026-11-21T02:03:05Z stdout F three\n"
	if err := os.WriteFile(filepath.Join(n.Dir, "web-pi-nginx", "0.log"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Serve(t)
	f.end(1, lost+"islet: lines of the log are missing: they were removed before they could be printed "+
		"(containerLogMaxSize, containerLogMaxFiles)\n")
}

// TestLogIncomplete checks that islet logs fails if the agent cannot read the whole log. The command does not retry. It retries only when
// the agent ends.
func TestLogIncomplete(t *testing.T) {
	n, _ := startNode(t)
	n.Log(t, "web-pi-nginx", "one")
	n.Runtime.Exit("web-pi-nginx")
	if err := os.WriteFile(filepath.Join(n.Dir, "web-pi-nginx", "0.log.20261121-000001.gz"), []byte("this is not gzip"), 0o600); err != nil {
		t.Fatal(err)
	}
	const message = "islet: the log of container nginx is not complete: lines are missing because 0.log.20261121-000001.gz is damaged: gzip: invalid header\n"
	for _, args := range [][]string{{"logs"}, {"logs", "-f"}, {"logs", "--tail=2"}} {
		var out, errw bytes.Buffer
		code := cli.Main(t.Context(), append(args, "web", "-c", "nginx"), env(n, nil, &out, &errw))
		check(t, n, result{Out: out.String(), Err: errw.String(), Code: code}, 1, "one\n", message)
	}
}

// TestFollowReplaced checks that islet logs -f prints the last lines of a container that was replaced while the agent
// was stopped.
func TestFollowReplaced(t *testing.T) {
	n, stop := startNode(t)
	n.Log(t, "web-pi-sidecar", "one")
	f := follow(t, n, 0, "web", "-c", "sidecar", "--timestamps")
	const stamp = "2026-11-21T02:03:04.000000005Z "
	f.want(stamp + "one")
	stop()
	n.Log(t, "web-pi-sidecar", "last words")
	n.Runtime.Exit("web-pi-sidecar")
	n.Replace("web-pi", "sidecar")
	n.Serve(t)
	f.want(stamp + "last words")
	f.end(0, lost)
}

func TestFollowGone(t *testing.T) {
	n, stop := startNode(t)
	n.Log(t, "dns-pi-dns", "one")
	f := follow(t, n, 0, "dns")
	f.want("one")
	stop()
	n.Remove("uid-dns-pi")
	stop = n.Serve(t)
	f.end(0, lost+"islet: pod kube-system/dns-pi is gone\n")

	n.Log(t, "web-pi-nginx", "one")
	f = follow(t, n, time.Millisecond, "web", "-c", "nginx")
	f.want("one")
	stop()
	f.end(command.ExitUnreachable, lost+"islet: gave up after 1ms: cannot reach the agent at DIR/s: is it running? (systemctl status islet)\n")
}
