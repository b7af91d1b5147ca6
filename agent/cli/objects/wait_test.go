package objects_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/local/pods"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

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
	if got := apply(func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }); got.Code != 1 ||
		!strings.Contains(got.Err, "pod default/hello has failed") || !strings.HasPrefix(got.Err, "  - pod default/hello: Failed") {
		t.Errorf("failed: %+v", got)
	}
	n.Remove("uid-hello-c")
	write("d")
	if got := apply(func(p *v1.Pod) {
		p.Status = v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{Name: "c",
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such\x1b image"}}}}}
	}, "--timeout=300ms"); got.Code != 1 || !strings.Contains(got.Err, "is not ready after 300ms: it is ErrImagePull (no such? image); see islet describe default/hello") ||
		!strings.HasPrefix(got.Err, "pod/hello: container c: ErrImagePull: no such? image\n  - pod default/hello: container c: ErrImagePull: no such? image\n      -> islet describe hello\n") {
		t.Errorf("not ready: %+v", got)
	}
	if got := run(t, n, "", "apply", "--wait", "--dry-run", "-f", file); got.Code != command.ExitUsage {
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
	ended := podtest.New("hello", podtest.UID("uid-hello-a"), podtest.Source(keys.SourceLocal))
	ended.DeletionTimestamp = &deleted
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
			code <- cli.Main(t.Context(), []string{"apply", "--wait", "-f", file}, env(n, nil, both, both))
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
	n.Put(ended)
	if got := run(t, n, "", "apply", "--wait", "--timeout=300ms", "-f", file); got.Code != 1 ||
		!strings.Contains(got.Err, "is not ready after 300ms: it is Terminating") {
		t.Errorf("the earlier pod does not end: %+v", got)
	}
}

// endingPods is a local source whose earlier pods have not ended when a manifest has been applied.
type endingPods struct{ pods.Local }

func (endingPods) Apply(context.Context, []*v1.Pod) error { return nil }
