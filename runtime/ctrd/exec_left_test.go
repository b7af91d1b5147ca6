package ctrd_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// TestChildLeftBehind checks an exec whose command leaves a child process that keeps the output open for an hour. The exec returns the exit
// code and all output when the command ends. runc itself would wait for the child process. With a terminal, the exec returns all output
// too. crun itself would lose the end of the output.
func TestChildLeftBehind(t *testing.T) {
	for _, oci := range []string{"", "runc", shippedOCI(t)} {
		t.Run("by "+oci, func(t *testing.T) {
			if _, err := exec.LookPath(oci); oci != "" && err != nil {
				t.Skip(err)
			}
			t.Setenv("ISLET_TEST_OCI", oci)
			n := newNode(t, 4)
			_, id := n.runPod(t, 1, "wait")
			cmd := []string{"/prog", "forked", "1h", "print", "own", "exit", "3"}
			r, err := n.ExecSync(t.Context(), &api.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: 60})
			if err != nil || r.ExitCode != 3 || string(r.Stdout) != "own\n" {
				t.Errorf("a probe: %v, %v", r, err)
			}
			var out slowWriter
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = n.Stream(ctx, id, cri.ExecOptions{Command: []string{"/prog", "forked", "1h", "lines", "100000", "exit", "3"}, Stdout: &out})
			if exit := (cri.ExitError{}); !errors.As(err, &exit) || exit.Code != 3 || out.Len() != 588890 {
				t.Errorf("a slow reader: %d bytes, %v", out.Len(), err)
			}
			out.Reset()
			err = n.Stream(ctx, id, cri.ExecOptions{Command: []string{"/prog", "lines", "9000", "exit", "3"}, Stdout: &out, TTY: true})
			if exit := (cri.ExitError{}); !errors.As(err, &exit) || exit.Code != 3 || out.Len() != 52890 {
				t.Errorf("a slow reader of a terminal: %d bytes, %v", out.Len(), err)
			}
		})
	}
}

// shippedOCI returns the path of the OCI runtime that islet ships. The file exists after a build with "make oci".
func shippedOCI(t *testing.T) string {
	path, err := filepath.Abs("../../.cache/oci/crun")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A slowWriter accepts a few hundred kilobytes per second.
type slowWriter struct{ strings.Builder }

func (s *slowWriter) Write(b []byte) (int, error) {
	<-time.After(20 * time.Millisecond)
	return s.Builder.Write(b)
}

func (s *slowWriter) Close() error { return nil }
