package logs_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/ptytest"
)

// logNode returns a node with two pods with the label app=web, and a third pod in another namespace.
func logNode(t *testing.T) *servertest.Node {
	n, _ := servertest.Start(t)
	for _, name := range []string{"a", "b", "c"} {
		p := n.Pod(name, now, "app", "side").DeepCopy()
		p.Labels = map[string]string{"app": "web"}
		if name == "c" {
			p.Namespace = "other"
		}
		n.Put(p)
		n.Log(t, name+"-app", "one", "two of "+name)
		n.Log(t, name+"-side", "side of "+name)
	}
	return n
}

func TestLogsOfSeveral(t *testing.T) {
	n := logNode(t)
	check(t, n, run(t, n, "", "logs", "a", "b", "--tail=1"), 0, "[pod/a/app] two of a\n[pod/b/app] two of b\n", "")
	check(t, n, run(t, n, "", "logs", "-l", "app=web", "--tail=1"), 0, "[pod/a/app] two of a\n[pod/b/app] two of b\n", "")
	check(t, n, run(t, n, "", "logs", "-l", "app=web", "-A", "--tail=1", "-c", "side"), 0,
		"[pod/default/a/side] side of a\n[pod/default/b/side] side of b\n[pod/other/c/side] side of c\n", "")
	check(t, n, run(t, n, "", "logs", "--all-pods", "--prefix=false", "--tail=1"), 0, "two of a\ntwo of b\n", "")
	check(t, n, run(t, n, "", "logs", "a", "side"), 0, "side of a\n", "")
	check(t, n, run(t, n, "", "logs", "a", "none"), command.ExitNotFound, "", "islet: pod default/a has no container \"none\": it has app, side\n")
	check(t, n, run(t, n, "", "logs", "a", "b", "--all-containers", "--tail=1"), 0,
		"[pod/a/app] two of a\n[pod/a/side] side of a\n[pod/b/app] two of b\n[pod/b/side] side of b\n", "")
	check(t, n, run(t, n, "", "logs", "-l", "no=such"), command.ExitNotFound, "", "islet: no pods match the labels no=such in namespace default\n")
	check(t, n, run(t, n, "", "logs", "-l", "app=web", "-n", "none"), command.ExitNotFound, "",
		"islet: no pods match the labels app=web in namespace none; there are 3 in others: use -A\n")
	n.Log(t, "a-app", strings.Split(strings.Repeat("x ", 20)+"x", " ")...)
	if got := run(t, n, "", "logs", "-l", "app=web"); strings.Count(got.Out, "[pod/a/app] x\n") != 10 {
		t.Errorf("without --tail: %q", got.Out)
	}
	for _, args := range [][]string{{}, {"a", "-l", "x=y"}, {"a", "--all-pods"}, {"-l", "app=web", "-f", "-A", "--max-log-requests=2"},
		{"a", "--max-log-requests=0"}, {"a", "--max-log-requests=1000"}} {
		if got := run(t, n, "", append([]string{"logs"}, args...)...); got.Code != command.ExitUsage || got.Out != "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	// An error of one log does not stop the others.
	if got := run(t, n, "", "logs", "a", "b", "-p"); got.Code != 1 || strings.Count(got.Err, "previous terminated container") != 2 ||
		!strings.Contains(got.Err, "islet: pod default/a, container app: ") {
		t.Errorf("previous logs: %+v", got)
	}
}

// TestLogsFollowSeveral checks that the lines of several followed logs never mix, and that the command ends with the
// last container.
func TestLogsFollowSeveral(t *testing.T) {
	n := logNode(t)
	for _, id := range []string{"a-app", "b-app"} {
		n.Runtime.Exit(id)
	}
	got := run(t, n, "", "logs", "-f", "-l", "app=web", "--tail=-1")
	lines := map[string]int{}
	for line := range strings.Lines(got.Out) {
		lines[line]++
	}
	if got.Code != 0 || len(lines) != 4 || lines["[pod/a/app] two of a\n"] != 1 || lines["[pod/b/app] two of b\n"] != 1 {
		t.Errorf("%+v", got)
	}
}

// TestLogsOnTerminal checks that islet logs filters a log if and only if the output is a terminal.
func TestLogsOnTerminal(t *testing.T) {
	const hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\n"
	n := logNode(t)
	n.Log(t, "a-app", strings.TrimSuffix(hostile, "\n"))
	if got := run(t, n, "", "logs", "a", "-c", "app", "--tail=1"); got.Out != hostile {
		t.Errorf("to a file: %q", got.Out)
	}
	master, slave := ptytest.Open(t)
	code := make(chan int, 1)
	go func() {
		code <- cli.Main(t.Context(), []string{"logs", "a", "-c", "app", "--tail=1"}, env(n, nil, slave, os.Stderr))
	}()
	buf, got := make([]byte, 1024), ""
	master.SetReadDeadline(time.Now().Add(time.Minute))
	for !strings.Contains(got, "\n") {
		k, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:k])
	}
	if c := <-code; c != 0 || !strings.Contains(got, "?]0;title?") || strings.Contains(got, "\x1b]") {
		t.Errorf("to a terminal: code %d, %q", c, got)
	}
}
