package cli

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// startSilentAgent returns a node whose agent accepts connections and never responds.
func startSilentAgent(t *testing.T) *servertest.Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "islet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &servertest.Node{Dir: dir, Socket: filepath.Join(dir, "s")}
	ln, err := net.Listen("unix", n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return n
}

// TestHungAgent checks that every command times out with an error if the agent does not respond.
func TestHungAgent(t *testing.T) {
	n := startSilentAgent(t)
	archive := filepath.Join(n.Dir, "big.tar")
	os.WriteFile(archive, make([]byte, 8<<20), 0o600)
	manifest := filepath.Join(n.Dir, "pod.yaml")
	os.WriteFile(manifest, []byte("kind: Pod"), 0o600)
	for _, args := range [][]string{
		{"status"}, {"pods"}, {"pods", "-w"}, {"describe", "x"}, {"logs", "x"}, {"exec", "x", "--", "y"}, {"attach", "x"}, {"top"}, {"events"}, {"events", "-w"},
		{"images", "ls"}, {"images", "import", archive}, {"images", "pull", "x"}, {"images", "rm", "x"}, {"images", "prune"}, {"apply", "-f", manifest},
		{"delete", "-f", manifest}, {"delete", "x"}, {"restart", "x"}, {"port-forward", "x", "80"}, {"cp", "x:/y", "z"},
	} {
		var out, errw bytes.Buffer
		e := env(n, strings.NewReader(""), &out, &errw)
		e.ResponseTimeout = 50 * time.Millisecond
		began := time.Now()
		if code := Main(t.Context(), args, e); code != command.ExitUnreachable || !strings.Contains(errw.String(), "does not answer: it hangs") {
			t.Errorf("%q: code %d, %s", args, code, errw.String())
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("%q gave up after %s", args, d)
		}
	}
}

// TestHungInTheMiddle checks that a command times out if the agent stops responding during a session or a stream. It does not time out
// while the agent sends keep-alives without data.
func TestHungInTheMiddle(t *testing.T) {
	n, _ := startNode(t)
	var errw bytes.Buffer
	e := env(n, nil, io.Discard, &errw)
	e.ResponseTimeout = 50 * time.Millisecond
	if code := Main(t.Context(), []string{"pods", "-w"}, e); code != command.ExitUnreachable || !strings.Contains(errw.String(), "does not answer") {
		t.Errorf("a stream without a sign of life: code %d, %s", code, errw.String())
	}
	errw.Reset()
	if code := Main(t.Context(), []string{"exec", "web", "-c", "nginx", "--", "hang"}, e); code != command.ExitUnreachable || !strings.Contains(errw.String(), "does not answer") {
		t.Errorf("a session without a sign of life: code %d, %s", code, errw.String())
	}
}
