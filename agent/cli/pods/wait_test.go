package pods_test

import (
	"bufio"
	"io"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// A pendingWait is islet wait that runs in the background.
type pendingWait struct {
	lines *bufio.Scanner // standard output
	err   strings.Builder
	code  chan int
}

func startWait(t *testing.T, n *servertest.Node, errw io.Writer, args ...string) *pendingWait {
	t.Helper()
	r, w := io.Pipe()
	p := &pendingWait{lines: bufio.NewScanner(r), code: make(chan int, 1)}
	if errw == nil {
		errw = &p.err
	}
	go func() {
		p.code <- cli.Main(t.Context(), append([]string{"wait"}, args...), env(n, nil, w, errw))
		w.Close()
	}()
	return p
}

// next returns the next line. The first line shows that the wait has begun, if some pod was in the requested state from the beginning.
func (p *pendingWait) next() string {
	p.lines.Scan()
	return p.lines.Text()
}

func TestWait(t *testing.T) {
	n, _ := startNode(t)
	check(t, n, run(t, n, "", "wait", "web"), 0, "pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=ready", "pod/web-pi"), 0, "pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=condition=Ready=true", "pod", "web"), 0, "pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=jsonpath={.status.phase}=Running", "web"), 0, "pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=jsonpath={.status.containerStatuses[?(@.name==\"nginx\")].ready}=true", "web"), 0,
		"pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=delete", "none"), 0, "", "")
	check(t, n, run(t, n, "", "wait", "none"), command.ExitNotFound, "", "islet: pod \"none\" not found\n")
	check(t, n, run(t, n, "", "wait", "-l", "no=such"), command.ExitNotFound, "", "islet: no pods match the labels no=such in namespace default\n")
	check(t, n, run(t, n, "", "wait", "--timeout=0", "--for=Deleted", "web"), 1, "",
		"islet: timed out waiting for the condition Deleted on pod default/web-pi: it is Running; see islet describe default/web-pi\n")
	check(t, n, run(t, n, "", "wait", "--timeout=50ms", "--for=jsonpath={.metadata.labels.none}", "web"), 1, "",
		"islet: timed out waiting for the condition {.metadata.labels.none} on pod default/web-pi: it is Running; see islet describe default/web-pi\n")
	check(t, n, run(t, n, "", "wait", "--timeout=0", "--for=created", "none"), command.ExitNotFound, "",
		"islet: timed out waiting for a pod none to be created\n")
	for _, args := range [][]string{{}, {"web", "--all"}, {"web", "--for="}, {"web", "--for=Redy"}, {"web", "--for=Running"}, {"web", "--for=condition="},
		{"web", "--for=jsonpath={.a}="}, {"web", "--for=jsonpath={..a}"}, {"-l", "a in"}} {
		if got := run(t, n, "", append([]string{"wait"}, args...)...); got.Code != command.ExitUsage || got.Err == "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := run(t, n, "", "wait", "web", "--for=Running"); !strings.Contains(got.Err, "--for=jsonpath={.status.phase}=Running") {
		t.Errorf("a phase: %s", got.Err)
	}
	for path, why := range map[string]string{"{.spec.containers[*].name}=x": "selects 2 values", "{.spec}=x": "cannot be compared"} {
		if got := run(t, n, "", "wait", "web", "--for=jsonpath="+path); got.Code != 1 || !strings.Contains(got.Err, why) {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestWaitForChanges checks that a wait ends when the pods change, and follows a pod that is replaced.
func TestWaitForChanges(t *testing.T) {
	n, _ := servertest.Start(t)
	slow := n.Pod("slow", now, "app").DeepCopy()
	slow.Labels = map[string]string{"app": "x"}
	slow.Status.Conditions = nil
	n.Put(slow)
	other := n.Pod("other", now, "app").DeepCopy()
	other.Labels = slow.Labels
	n.Put(other)

	w := startWait(t, n, nil, "-l", "app=x")
	if line := w.next(); line != "pod/other condition met" {
		t.Fatal(line)
	}
	next := slow.DeepCopy()
	next.UID = "uid-slow-2"
	n.Put(next)
	n.Remove(slow.UID)
	ready := next.DeepCopy()
	ready.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	n.Put(ready)
	if line, code := w.next(), <-w.code; line != "pod/slow condition met" || code != 0 {
		t.Errorf("a replaced pod: %q, code %d, %s", line, code, w.err.String())
	}

	w = startWait(t, n, nil, "--for=Deleted", "slow", "other")
	n.Remove("uid-slow-2")
	n.Remove("uid-other")
	for w.next() != "" {
	}
	if code := <-w.code; code != 0 {
		t.Errorf("deleted: code %d, %s", code, w.err.String())
	}

	w = startWait(t, n, nil, "--for=Created", "-l", "app=x")
	n.Put(ready)
	if line, code := w.next(), <-w.code; line != "pod/slow condition met" || code != 0 {
		t.Errorf("created: %q, code %d, %s", line, code, w.err.String())
	}

	failed := ready.DeepCopy()
	failed.Status = v1.PodStatus{Phase: v1.PodFailed}
	n.Put(failed)
	if got := run(t, n, "", "wait", "slow"); got.Code != 1 || !strings.Contains(got.Err, "has ended (Failed)") {
		t.Errorf("a failed pod: %+v", got)
	}
}

// TestWaitForAgent checks that a wait survives a restart of the agent.
func TestWaitForAgent(t *testing.T) {
	n, stop := servertest.Start(t)
	pod := n.Pod("web", now, "app").DeepCopy()
	pod.Status.Conditions = nil
	n.Put(pod)
	n.Pod("other", now, "app")
	r, errw := io.Pipe()
	w := startWait(t, n, errw, "web", "other")
	if line := w.next(); line != "pod/other condition met" {
		t.Fatal(line)
	}
	stop()
	lost := bufio.NewScanner(r)
	if !lost.Scan() || !strings.Contains(lost.Text(), "waiting for the agent") {
		t.Fatalf("printed %q", lost.Text())
	}
	pod = pod.DeepCopy()
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	n.Put(pod)
	n.Serve(t)
	if line, code := w.next(), <-w.code; line != "pod/web condition met" || code != 0 {
		t.Errorf("after a restart of the agent: %q, code %d", line, code)
	}
}

// TestWaitExplains checks that a wait that fails or times out shows the exit code, the last line of the log, and the command that shows
// more, without control characters.
func TestWaitExplains(t *testing.T) {
	n, _ := startNode(t)
	for _, p := range n.List() {
		if p.Name == "crash-pi" {
			p = p.DeepCopy()
			p.Status.Conditions = nil
			n.Put(p)
		}
	}
	n.Log(t, "crash-pi-app", "started", "no \x1b[31mdatabase")
	const trouble = "  - pod default/crash-pi: container app: CrashLoopBackOff: exit code 1 (Error), 3 restarts, the next start is delayed; " +
		"the last line of its log: "
	got := run(t, n, "", "wait", "--timeout=0", "crash")
	if lines := strings.Split(got.Err, "\n"); got.Code != 1 || len(lines) != 4 || !strings.HasPrefix(lines[0], trouble) ||
		!strings.Contains(lines[0], "database") || strings.Contains(got.Err, "\x1b") ||
		!strings.HasPrefix(lines[1], "      -> islet logs crash-pi") || !strings.HasPrefix(lines[2], "islet: timed out") {
		t.Errorf("a timeout: %+v", got)
	}
	ended := n.Pod("ended", now, "app").DeepCopy()
	ended.Status = v1.PodStatus{Phase: v1.PodFailed, Message: "out of \x1bmemory"}
	n.Put(ended)
	if got := run(t, n, "", "wait", "ended"); got.Code != 1 || !strings.HasPrefix(got.Err, "  - pod default/ended: Failed: out of ?memory\n      -> islet describe ended\nislet: ") {
		t.Errorf("a failed pod: %+v", got)
	}
	if got := run(t, n, "", "wait", "web", "--timeout=0", "--for=Deleted"); got.Code != 1 || strings.Contains(got.Err, "->") {
		t.Errorf("a pod without troubles: %+v", got)
	}
}
