package streams_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// A lateWriter blocks for three seconds before its first Write.
type lateWriter struct {
	strings.Builder
	once sync.Once
}

func (l *lateWriter) Write(b []byte) (int, error) {
	l.once.Do(func() { <-time.After(3 * time.Second) })
	return l.Builder.Write(b)
}

// An endlessInput is a standard input that never ends.
type endlessInput struct{}

func (endlessInput) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestSlowEnd checks that the client gets every byte and the exit code even if the command exited long before. The client reads late, or it
// continues to send data that nobody reads.
func TestSlowEnd(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	const size = 1 << 20
	want := strings.Repeat("0123456789abcdef", size/16)
	var all sync.WaitGroup
	for _, protocol := range []string{"spdy", "websocket"} {
		for _, in := range []io.Reader{nil, endlessInput{}} {
			path := "/exec/default/web/nginx?command=give&command=1048576&command=7&output=1&error=1"
			if in != nil {
				path += "&input=1"
			}
			x := executor(t, n, protocol, path)
			all.Go(func() {
				var out lateWriter
				err := x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: io.Discard})
				if exit := (exec.CodeExitError{}); !errors.As(err, &exit) || exit.Code != 7 || out.String() != want {
					t.Errorf("%s, sending %v: %v, %d of %d bytes", protocol, in != nil, err, out.Len(), len(want))
				}
			})
		}
	}
	all.Wait()
	n.Runtime.Streams.Wait()
}
