package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/local/pods"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/keys"
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
		p.code <- Main(t.Context(), append([]string{"wait"}, args...), env(n, nil, w, errw))
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
	n, _ := node(t)
	check(t, n, run(t, n, "", "wait", "web"), 0, "pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=ready", "pod/web-pi"), 0, "pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=condition=Ready=true", "pod", "web"), 0, "pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=jsonpath={.status.phase}=Running", "web"), 0, "pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=jsonpath={.status.containerStatuses[?(@.name==\"nginx\")].ready}=true", "web"), 0,
		"pod/web-pi condition met\n", "")
	check(t, n, run(t, n, "", "wait", "--for=delete", "none"), 0, "", "")
	check(t, n, run(t, n, "", "wait", "none"), ExitNotFound, "", "islet: pod \"none\" not found\n")
	check(t, n, run(t, n, "", "wait", "-l", "no=such"), ExitNotFound, "", "islet: no pods match the labels no=such in namespace default\n")
	check(t, n, run(t, n, "", "wait", "--timeout=0", "--for=Deleted", "web"), 1, "",
		"islet: timed out waiting for the condition Deleted on pod default/web-pi: it is Running; see islet describe default/web-pi\n")
	check(t, n, run(t, n, "", "wait", "--timeout=50ms", "--for=jsonpath={.metadata.labels.none}", "web"), 1, "",
		"islet: timed out waiting for the condition {.metadata.labels.none} on pod default/web-pi: it is Running; see islet describe default/web-pi\n")
	check(t, n, run(t, n, "", "wait", "--timeout=0", "--for=created", "none"), ExitNotFound, "",
		"islet: timed out waiting for a pod none to be created\n")
	for _, args := range [][]string{{}, {"web", "--all"}, {"web", "--for="}, {"web", "--for=Redy"}, {"web", "--for=Running"}, {"web", "--for=condition="},
		{"web", "--for=jsonpath={.a}="}, {"web", "--for=jsonpath={..a}"}, {"-l", "a in"}} {
		if got := run(t, n, "", append([]string{"wait"}, args...)...); got.code != ExitUsage || got.err == "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := run(t, n, "", "wait", "web", "--for=Running"); !strings.Contains(got.err, "--for=jsonpath={.status.phase}=Running") {
		t.Errorf("a phase: %s", got.err)
	}
	for path, why := range map[string]string{"{.spec.containers[*].name}=x": "selects 2 values", "{.spec}=x": "cannot be compared"} {
		if got := run(t, n, "", "wait", "web", "--for=jsonpath="+path); got.code != 1 || !strings.Contains(got.err, why) {
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
	if got := run(t, n, "", "wait", "slow"); got.code != 1 || !strings.Contains(got.err, "has ended (Failed)") {
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
	n, _ := node(t)
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
	if lines := strings.Split(got.err, "\n"); got.code != 1 || len(lines) != 4 || !strings.HasPrefix(lines[0], trouble) ||
		!strings.Contains(lines[0], "database") || strings.Contains(got.err, "\x1b") ||
		!strings.HasPrefix(lines[1], "      -> islet logs crash-pi") || !strings.HasPrefix(lines[2], "islet: timed out") {
		t.Errorf("a timeout: %+v", got)
	}
	ended := n.Pod("ended", now, "app").DeepCopy()
	ended.Status = v1.PodStatus{Phase: v1.PodFailed, Message: "out of \x1bmemory"}
	n.Put(ended)
	if got := run(t, n, "", "wait", "ended"); got.code != 1 || !strings.HasPrefix(got.err, "  - pod default/ended: Failed: out of ?memory\n      -> islet describe ended\nislet: ") {
		t.Errorf("a failed pod: %+v", got)
	}
	if got := run(t, n, "", "wait", "web", "--timeout=0", "--for=Deleted"); got.code != 1 || strings.Contains(got.err, "->") {
		t.Errorf("a pod without troubles: %+v", got)
	}
}

// TestApplyWait checks that apply waits for the pods that it has applied, and reports why they are not ready.
func TestApplyWait(t *testing.T) {
	n, _ := servertest.Start(t)
	file := filepath.Join(n.Dir, "pod.yaml")
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: hello}\nspec: {nodeName: %}\n"
	write := func(version string) {
		os.WriteFile(file, []byte(strings.ReplaceAll(manifest, "%", version)), 0o600)
	}
	apply := func(change func(*v1.Pod), args ...string) result {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { // the worker that runs the pod
			for ctx.Err() == nil {
				changed := n.Changed()
				for _, p := range n.List() {
					if p.Status.Phase == "" {
						p = p.DeepCopy()
						change(p)
						n.Put(p)
					}
				}
				select {
				case <-ctx.Done():
				case <-changed:
				}
			}
		}()
		return run(t, n, "", append([]string{"apply", "--wait", "-f", file}, args...)...)
	}
	write("a")
	check(t, n, apply(func(p *v1.Pod) {
		p.Status = v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	}), 0, "pod/hello created\npod/hello ready\n", "")
	n.Remove("uid-hello-a")
	write("b")
	check(t, n, apply(func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), 0, "pod/hello created\npod/hello completed\n", "")
	n.Remove("uid-hello-b")
	write("c")
	if got := apply(func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }); got.code != 1 ||
		!strings.Contains(got.err, "pod default/hello has failed") || !strings.HasPrefix(got.err, "  - pod default/hello: Failed") {
		t.Errorf("failed: %+v", got)
	}
	n.Remove("uid-hello-c")
	write("d")
	if got := apply(func(p *v1.Pod) {
		p.Status = v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{Name: "c",
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such\x1b image"}}}}}
	}, "--timeout=300ms"); got.code != 1 || !strings.Contains(got.err, "is not ready after 300ms: it is ErrImagePull (no such? image); see islet describe default/hello") ||
		!strings.HasPrefix(got.err, "pod/hello: container c: ErrImagePull: no such? image\n  - pod default/hello: container c: ErrImagePull: no such? image\n      -> islet describe hello\n") {
		t.Errorf("not ready: %+v", got)
	}
	n.Remove("uid-hello-d")
	write("e")
	if got := apply(func(p *v1.Pod) {
		deleted := metav1.NewTime(now)
		p.Status.Phase, p.DeletionTimestamp = v1.PodRunning, &deleted
	}, "--timeout=300ms"); got.code != 1 ||
		!strings.Contains(got.err, "is not ready after 300ms: it is Terminating") {
		t.Errorf("an earlier pod of the same manifest does not end: %+v", got)
	}
	if got := run(t, n, "", "apply", "--wait", "--dry-run", "-f", file); got.code != ExitUsage {
		t.Errorf("a dry run: %+v", got)
	}
}

// TestApplyWaitForSameUID checks that apply waits for the end of an earlier pod of the same manifest, which has the same UID, and then for
// the applied pod, and that it notices when the applied pod is deleted.
func TestApplyWaitForSameUID(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) { c.Local = endingPods{c.Local} })
	file := filepath.Join(n.Dir, "pod.yaml")
	os.WriteFile(file, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: hello}\nspec: {nodeName: a}\n"), 0o600)
	deleted := metav1.NewTime(now)
	ended := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "hello", Namespace: "default", UID: "uid-hello-a", DeletionTimestamp: &deleted,
		Annotations: map[string]string{keys.ConfigSource: keys.SourceLocal}}}
	waiting := ended.DeepCopy()
	waiting.DeletionTimestamp = nil
	waiting.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c",
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}
	ready := waiting.DeepCopy()
	ready.Status = v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	for _, c := range []struct {
		next *v1.Pod
		code int
		line string
	}{{ready, 0, "pod/hello ready"}, {ended, 1, "was deleted or replaced"}} {
		n.Put(ended)
		r, both := io.Pipe()
		code := make(chan int, 1)
		go func() {
			code <- Main(t.Context(), []string{"apply", "--wait", "-f", file}, env(n, nil, both, both))
			both.Close()
		}()
		lines := bufio.NewScanner(r)
		expect := func(want string) {
			for lines.Scan() {
				if strings.Contains(lines.Text(), want) {
					return
				}
			}
			t.Errorf("%q was not printed", want)
		}
		expect("pod/hello configured")
		n.Remove(ended.UID)
		n.Put(waiting)
		expect("no such image")
		n.Put(c.next)
		expect(c.line)
		if code := <-code; code != c.code {
			t.Errorf("code %d", code)
		}
		n.Remove(ended.UID)
	}
}

// endingPods is a local source whose earlier pods have not ended when a manifest has been applied.
type endingPods struct{ pods.Local }

func (endingPods) Apply(context.Context, []*v1.Pod) error { return nil }

func TestJSONPath(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"a.b/c": "x", "d": "e"}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: "i"}, {Name: "b", Stdin: true}}}}
	object, err := decodeObject(pod)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{.metadata.name}": "web", ".metadata.name": "web", "metadata.name": "web", "{$.metadata.name}": "web",
		`{.metadata.labels.a\.b/c}`: "x", `{.metadata.labels['a.b/c']}`: "x", `{.metadata["labels"].d}`: "e",
		"{.spec.containers[0].name}": "a", "{.spec.containers[-1].name}": "b", "{.spec.containers[5].name}": "", "{.spec.containers[-3].name}": "",
		"{.spec.containers[*].name}": "a b", `{.spec.containers[?(@.name=="b")].stdin}`: "true", `{.spec.containers[?(@.name!='b')].name}`: "a",
		"{.spec.containers[?(@.stdin)].name}": "b", "{.spec.containers[?(@.stdin==true)].name}": "b", "{.spec.containers.name}": "", "{.none.none}": "",
	} {
		path, err := parsePath(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, v := range path.find(object) {
			s, _ := formatValue(v)
			got = append(got, s)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "{}", "{.a", ".a}", "{..a}", "{.a[}", "{.a[x]}", "{.a['b}", "{.a['']}", "{.a[?(b)]}", "{.a[?(@.b==)]}", "{.a[?(@.b==1]}",
		"{.a[0:2]}", "{.a[0,1]}", "{.a b}", "{range .a}", "{." + strings.Repeat("a", maxPath) + "}"} {
		if path, err := parsePath(text); err == nil {
			t.Errorf("%s is accepted: %+v", text, path)
		}
	}
}

func FuzzJSONPath(f *testing.F) {
	f.Add("{.a[?(@.b=='c')].d[0][*]}", `{"a":[{"b":"c","d":[[1]]}]}`)
	f.Fuzz(func(t *testing.T, text, object string) {
		path, err := parsePath(text)
		if err != nil {
			return
		}
		var v any
		if json.Unmarshal([]byte(object), &v) == nil {
			path.find(v)
		}
		if len(path) == 0 {
			t.Error("an expression without steps is accepted")
		}
	})
}
