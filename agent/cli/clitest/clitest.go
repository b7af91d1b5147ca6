package clitest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/keys"
)

// Now is the time of the commands under test.
var Now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Lost is the message that a command prints when the agent stops while the command waits for it.
const Lost = "islet: lost the connection to the agent at DIR/s: waiting for the agent\n"

// Result contains the output and the exit code of a command.
type Result struct {
	Out, Err string
	Code     int
}

// A Main runs the command that is named in args, and returns its exit code. Tests pass the Main of package cli, which this package may not
// import: the tests of package cli use it too.
type Main func(ctx context.Context, args []string, env command.Env) int

// Run returns a function that runs a command with the agent of a node, which may be nil.
func Run(do Main) func(t *testing.T, n *servertest.Node, stdin string, args ...string) Result {
	return func(t *testing.T, n *servertest.Node, stdin string, args ...string) Result {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out, errw bytes.Buffer
		code := do(ctx, args, Env(n, strings.NewReader(stdin), &out, &errw))
		return Result{out.String(), errw.String(), code}
	}
}

// Env returns the environment of a command that finds the agent of a node, which may be nil.
func Env(n *servertest.Node, stdin io.Reader, out, errw io.Writer) command.Env {
	return command.Env{Stdin: stdin, Stdout: out, Stderr: errw, Version: "1.2.3", Now: func() time.Time { return Now },
		Getenv: func(name string) string {
			if name == "ISLET_SOCKET" && n != nil {
				return n.Socket
			}
			return ""
		}}
}

// Check compares the output and the exit code of a command with the expected ones. In the output, DIR stands for the node's directory.
func Check(t *testing.T, n *servertest.Node, got Result, code int, out, errText string) {
	t.Helper()
	if n != nil {
		got.Out, got.Err = strings.ReplaceAll(got.Out, n.Dir, "DIR"), strings.ReplaceAll(got.Err, n.Dir, "DIR")
	}
	if got.Code != code || got.Out != out || got.Err != errText {
		t.Errorf("got code %d, want %d\n-- out\n%s-- want\n%s-- err\n%s-- want\n%s", got.Code, code, got.Out, out, got.Err, errText)
	}
}

// Node returns a node with pods in several states, and a function that stops its agent.
func Node(t *testing.T) (*servertest.Node, func()) {
	n, stop := servertest.Start(t)
	n.Pod("web-pi", Now.Add(-5*time.Minute-3*time.Second), "nginx", "sidecar")
	crash := n.Pod("crash-pi", Now.Add(-3*time.Hour), "app").DeepCopy()
	crash.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "app", RestartCount: 3,
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, ContainerID: "islet://crash-pi-app",
			FinishedAt: metav1.NewTime(Now.Add(-90 * time.Second))}}}
	n.Put(crash)
	dns := n.Pod("dns-pi", Now.Add(-48*time.Hour), "dns").DeepCopy()
	dns.Namespace = "kube-system"
	dns.Annotations[keys.ConfigSource] = "file"
	n.Put(dns)
	return n, stop
}
