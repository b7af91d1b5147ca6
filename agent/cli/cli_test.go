package cli

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

// now is the time of the commands under test.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// result contains the output and the exit code of a command.
type result struct {
	out, err string
	code     int
}

func run(t *testing.T, n *servertest.Node, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errw bytes.Buffer
	code := Main(ctx, args, env(n, strings.NewReader(stdin), &out, &errw))
	return result{out.String(), errw.String(), code}
}

func env(n *servertest.Node, stdin io.Reader, out, errw io.Writer) command.Env {
	return command.Env{Stdin: stdin, Stdout: out, Stderr: errw, Version: "1.2.3", Now: func() time.Time { return now },
		Getenv: func(name string) string {
			if name == "ISLET_SOCKET" && n != nil {
				return n.Socket
			}
			return ""
		}}
}

// check compares the output and the exit code of a command with the expected ones. In the output, DIR stands for the node's directory.
func check(t *testing.T, n *servertest.Node, got result, code int, out, errText string) {
	t.Helper()
	if n != nil {
		got.out, got.err = strings.ReplaceAll(got.out, n.Dir, "DIR"), strings.ReplaceAll(got.err, n.Dir, "DIR")
	}
	if got.code != code || got.out != out || got.err != errText {
		t.Errorf("got code %d, want %d\n-- out\n%s-- want\n%s-- err\n%s-- want\n%s", got.code, code, got.out, out, got.err, errText)
	}
}

// startNode returns a node with pods in several states.
func startNode(t *testing.T) (*servertest.Node, func()) {
	n, stop := servertest.Start(t)
	n.Pod("web-pi", now.Add(-5*time.Minute-3*time.Second), "nginx", "sidecar")
	crash := n.Pod("crash-pi", now.Add(-3*time.Hour), "app").DeepCopy()
	crash.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "app", RestartCount: 3,
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, ContainerID: "islet://crash-pi-app",
			FinishedAt: metav1.NewTime(now.Add(-90 * time.Second))}}}
	n.Put(crash)
	dns := n.Pod("dns-pi", now.Add(-48*time.Hour), "dns").DeepCopy()
	dns.Namespace = "kube-system"
	dns.Annotations[keys.ConfigSource] = "file"
	n.Put(dns)
	return n, stop
}

func TestUsage(t *testing.T) {
	n, stop := servertest.Start(t)
	check(t, n, run(t, n, "", "stauts"), command.ExitUsage, "", "islet: unknown command \"stauts\": did you mean \"status\"?\n")
	check(t, n, run(t, n, "", "logs", "--nope"), command.ExitUsage, "", "islet: unknown flag: --nope\nSee 'islet logs --help'\n")
	check(t, n, run(t, n, "", "exec", "web"), command.ExitUsage, "", "islet: exec needs a pod and a command: islet exec POD -- COMMAND\n")
	if got := run(t, n, "", "help"); got.code != 0 || !strings.Contains(got.out, "Exit codes: 0 done") ||
		strings.Contains(got.out, "__complete") {
		t.Errorf("help: %+v", got)
	}
	if got := run(t, n, "", "help", "images", "import"); got.code != 0 ||
		!strings.Contains(got.out, "islet images import [flags] ARCHIVE... | -\n") {
		t.Errorf("help of a command: %+v", got)
	}
	check(t, n, run(t, n, "", "frob", "x"), command.ExitUsage, "", "islet: unknown command \"frob\": see 'islet help'\n")
	for _, args := range [][]string{{}, {"--help"}, {"-h"}} {
		if got := run(t, n, "", args...); got.code != 0 || !strings.Contains(got.out, "port-forward") ||
			strings.Contains(got.out, "--pod-manifest-path") {
			t.Errorf("islet %q: %+v", args, got)
		}
	}
	check(t, nil, run(t, nil, "", "--socket", n.Socket, "pods", "none"), command.ExitNotFound, "", "islet: pod \"none\" not found\n")
	check(t, nil, run(t, nil, "", "--socket="+n.Socket, "pods", "none"), command.ExitNotFound, "", "islet: pod \"none\" not found\n")
	if got := run(t, nil, "", "--socket"); got.code != command.ExitUsage || !strings.Contains(got.out, "COMMAND [flags]") {
		t.Errorf("no command after --socket: %+v", got)
	}
	for _, c := range []struct {
		called, args string
		service      bool
		want         bool
	}{
		{"islet", "pods", false, true},
		{"/usr/bin/islet", "--socket x pods", false, true},
		{"islet", "--v=2", false, false},
		{"islet", "--socket-x=1", false, false},
		{"islet", "", false, true},
		{"islet", "", true, false}, // started by the service file of an earlier version, without flags
		{"/usr/local/bin/kubelet", "", false, false},
		{"islet", "--help", true, true},
		{"islet", "-h", false, true},
		{"islet", "--help-flags", false, true},
		{"islet", "--v=2 --help", false, false},
		{"kubelet", "--help", false, false},
	} {
		if got := IsCommand(c.called, strings.Fields(c.args), c.service); got != c.want {
			t.Errorf("%s %s (service %v): command %v", c.called, c.args, c.service, got)
		}
	}
	stop()
	check(t, n, run(t, n, "", "status"), command.ExitUnreachable, "",
		"islet: cannot reach the agent at DIR/s: is it running? (systemctl status islet)\n")
	check(t, n, run(t, n, "", "exec", "web", "--", "ls"), command.ExitUnreachable, "",
		"islet: cannot reach the agent at DIR/s: is it running? (systemctl status islet)\n")
}

func TestComplete(t *testing.T) {
	n, _ := startNode(t)
	for _, c := range []struct{ words, want string }{
		{"lo", "logs\n"},
		{"images im", "import\n"},
		{"logs w", "web-pi\n"},
		{"logs kube", "kube-system/dns-pi\n"},
		{"logs --prev", "--previous\n"},
		{"logs web -c s", "sidecar\n"},
		{"pods -o y", "yaml\n"},
		{"images rm l", "localhost/web:1\n"},
		{"exec web -- l", ""},
	} {
		check(t, n, run(t, n, "", append([]string{"__complete", "--"}, strings.Split(c.words, " ")...)...), 0, c.want, "")
	}
}
