package session_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

// TestDebug checks that islet debug adds an ephemeral container with the requested settings and connects to it, and that mistakes and
// nodes of clusters are refused.
func TestDebug(t *testing.T) {
	n, _ := startNode(t)
	var out, errw bytes.Buffer
	e := env(n, strings.NewReader("typed\n"), &out, &errw)
	e.ResponseTimeout = 2 * time.Second // the fake container never ends
	args := strings.Fields("debug web --image=busybox:1 -i -c dbg --target=nginx --image-pull-policy=Never -- cat -u")
	check(t, n, result{Code: cli.Main(t.Context(), args, e), Out: out.String(), Err: errw.String()}, 0, "typed\n", "")
	c := n.List()[len(n.List())-1].Spec.EphemeralContainers
	if len(c) != 1 || c[0].Name != "dbg" || c[0].Image != "busybox:1" || c[0].TargetContainerName != "nginx" || !c[0].Stdin ||
		!c[0].StdinOnce || c[0].TTY || c[0].ImagePullPolicy != "Never" || strings.Join(c[0].Command, " ") != "cat -u" {
		t.Errorf("%+v", c)
	}
	n.Log(t, "web-pi-brief", "said and gone")
	check(t, n, run(t, n, "", "debug", "web", "--image=busybox:1", "--attach", "-c", "brief", "--", "exit"), 7, "said and gone\n", "")
	got := run(t, n, "", "debug", "web", "--image=busybox:1")
	if got.Code != 0 || !strings.HasPrefix(got.Err, "Defaulting debug container name to debugger-") {
		t.Errorf("%+v", got)
	}
	check(t, n, run(t, n, "", "debug", "web", "--image=busybox:1", "-c", "quiet"), 0, "", "")
	for _, bad := range []struct {
		args string
		code int
		want string
	}{
		{"debug", command.ExitUsage, "debug needs a pod"}, {"debug web", command.ExitUsage, "debug needs --image"}, {"debug none --image=x", command.ExitNotFound, `pod "none" not found`},
		{"debug web sh --image=x", command.ExitUsage, "a command comes after --"}, {"debug web --image=x -i --attach=false", command.ExitUsage, "--stdin needs --attach"},
		{"debug web --image=x -c nginx", 1, "Duplicate"}, {"debug web --image=x -c A_B", 1, "name: Invalid"},
		{"debug web --image=X", 1, `image "X" has upper case letters`},
		{"debug web --image=x --target=none", 1, "must be a container of the pod"}, {"debug web --image=x --image-pull-policy=Often", 1, "Unsupported value"},
	} {
		if got := run(t, n, "", strings.Fields(bad.args)...); got.Code != bad.code || !strings.Contains(got.Err, bad.want) {
			t.Errorf("%s: %+v", bad.args, got)
		}
	}
	n.Describe = func(s *api.Status) { s.Cluster = &api.Cluster{} }
	if got := run(t, n, "", "debug", "web", "--image=x"); got.Code != 1 || !strings.Contains(got.Err, "use kubectl debug") {
		t.Errorf("in a cluster: %+v", got)
	}
}

// endingInput is a standard input without data. Its reader calls end first.
type endingInput struct{ end func() }

func (i endingInput) Read([]byte) (int, error) {
	i.end()
	return 0, io.EOF
}

// TestDebugEnded checks that islet debug shows the output of a container that ends before its streams are connected, and why a container
// could not start.
func TestDebugEnded(t *testing.T) {
	for _, c := range []struct {
		state    v1.ContainerStateTerminated
		out, err string
	}{
		{v1.ContainerStateTerminated{ExitCode: 7, Reason: "Error"}, "said early\n", ""},
		{v1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: "no program none"}, "said early\n", "islet: no program none\n"},
	} {
		n, _ := startNode(t)
		n.Log(t, "web-pi-late", "said early")
		var out, errw bytes.Buffer
		e := env(n, endingInput{func() {
			p := n.List()[len(n.List())-1].DeepCopy()
			c.state.ContainerID = "islet://web-pi-late"
			p.Status.EphemeralContainerStatuses[0].State = v1.ContainerState{Terminated: &c.state}
			n.Runtime.Exit("web-pi-late")
			n.Put(p)
		}}, &out, &errw)
		code := cli.Main(t.Context(), []string{"debug", "web", "--image=busybox:1", "-i", "-c", "late"}, e)
		check(t, n, result{Code: code, Out: out.String(), Err: errw.String()}, int(c.state.ExitCode), c.out, c.err)
	}
}
