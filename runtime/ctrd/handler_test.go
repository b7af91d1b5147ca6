package ctrd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/ctrd"
)

// ociProgram returns the path of the OCI runtime that works on this host.
func (n *node) ociProgram(t *testing.T) string {
	t.Helper()
	st, err := n.Status(t.Context(), &api.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath(st.Info["ociRuntime"])
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wrapper creates an OCI runtime that records its arguments and calls the real OCI runtime.
func (n *node) wrapper(t *testing.T, name string) (program string, calls func(verb string) int) {
	t.Helper()
	oci, dir := n.ociProgram(t), t.TempDir()
	program, trace := filepath.Join(dir, name), filepath.Join(dir, "trace")
	script := fmt.Sprintf("#!/bin/sh\necho \" $* \" >> %s\nexec %s \"$@\"\n", trace, oci)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, func(verb string) int {
		b, err := os.ReadFile(trace)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(b), " "+verb+" ")
	}
}

// TestHandler checks that the containers and the init process of a sandbox are run only by the program of the sandbox's handler. If a later
// configuration lacks the handler, the same program is still used. An unknown handler is an error.
func TestHandler(t *testing.T) {
	n := newNode(t, 4)
	program, calls := n.wrapper(t, "boxed")
	n.stop(t)
	n.handlers = map[string]ctrd.Handler{"boxed": {OCIRuntime: program}, "lost": {OCIRuntime: filepath.Join(filepath.Dir(program), "none")}}
	n.start(t)
	ctx := t.Context()

	st, err := n.Status(ctx, &api.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, h := range st.RuntimeHandlers {
		names = append(names, h.Name)
		if h.Features == nil {
			t.Errorf("handler %q has no features", h.Name)
		}
	}
	if got := strings.Join(names, ","); got != ",boxed" {
		t.Errorf("handlers %q, want only installed handlers", got)
	}
	for name, want := range map[string]string{"kata": `no runtime for "kata" is configured: this node has "boxed", "lost"`, "lost": "install the program"} {
		_, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: n.podConfig(9), RuntimeHandler: name})
		if err == nil || !strings.Contains(err.Error(), want) || name == "kata" && !errdefs.IsNotFound(err) {
			t.Errorf("handler %q: %v", name, err)
		}
	}

	_, plain := n.runPod(t, 1, "wait")
	if calls("run")+calls("create") != 0 {
		t.Error("a pod without a handler was run by the handler's program")
	}
	cfg := n.podConfig(2)
	cfg.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_POD
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg, RuntimeHandler: "boxed"})
	if err != nil {
		t.Fatal(err)
	}
	init := calls("run") + calls("create")
	ctr := containerConfig("main", "wait")
	ctr.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_POD
	c, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: ctr})
	if err == nil {
		_, err = n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId})
	}
	if err != nil {
		t.Fatal(err)
	}
	if both := calls("run") + calls("create"); init == 0 || both <= init {
		t.Errorf("the handler's program ran %d containers, then %d", init, both)
	}
	if ps, err := n.PodSandboxStatus(ctx, &api.PodSandboxStatusRequest{PodSandboxId: s.PodSandboxId}); err != nil || ps.Status.RuntimeHandler != "boxed" {
		t.Errorf("%v, %v", ps, err)
	}

	n.stop(t)
	n.handlers = nil // the handler is removed from the configuration while the pod runs
	n.start(t)
	if got := n.status(t, c.ContainerId).State; got != api.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("after a restart it is %v", got)
	}
	if r, err := n.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: c.ContainerId, Cmd: []string{"/prog", "exit", "3"}}); err != nil || r.ExitCode != 3 {
		t.Error(r, err)
	}
	if calls("exec") == 0 {
		t.Error("the command was run by another program")
	}
	for _, id := range []string{c.ContainerId, plain} {
		if _, err := n.StopContainer(ctx, &api.StopContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
	}
	n.removeAll(t)
	if calls("delete") < 2 {
		t.Errorf("the handler's program deleted %d containers", calls("delete"))
	}
}

// TestHandlerOfBefore checks sandboxes of an earlier version of islet, which ignored handlers. Such sandboxes run without the requested
// isolation. They are therefore not ready, and are recreated or rejected.
func TestHandlerOfBefore(t *testing.T) {
	n := newNode(t, 4)
	pod, _ := n.runPod(t, 1, "wait")
	n.stop(t)
	f, err := os.OpenFile(filepath.Join(n.dir, "state", "sandboxes", pod+".json"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"handler\":\"gvisor\",\"program\":\"\"}\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	if got := n.sandboxState(t, pod); got != api.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("it is %v", got)
	}
	if _, err := n.StopPodSandbox(context.Background(), &api.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Error(err)
	}
}

// TestOtherOCIRuntime checks a change of the node's OCI runtime, for example by an upgrade of the packages. The old runtime still manages
// the containers that it has created. The new runtime creates new containers.
func TestOtherOCIRuntime(t *testing.T) {
	n := newNode(t, 4)
	old, byOld := n.wrapper(t, "old")
	young, byYoung := n.wrapper(t, "young")
	n.stop(t)
	n.oci = old
	n.start(t)
	_, c := n.runPod(t, 1, "wait")
	n.stop(t)
	n.oci = young
	n.start(t)
	if got := n.status(t, c).State; got != api.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("after a restart it is %v", got)
	}
	if r, err := n.ExecSync(t.Context(), &api.ExecSyncRequest{ContainerId: c, Cmd: []string{"/prog", "exit", "3"}}); err != nil || r.ExitCode != 3 {
		t.Error(r, err)
	}
	if byOld("exec") == 0 || byYoung("exec") != 0 {
		t.Errorf("a command in an old container was run by the old program %d times, by the new one %d times", byOld("exec"), byYoung("exec"))
	}
	made := byOld("run") + byOld("create")
	n.runPod(t, 2, "wait")
	if byYoung("run")+byYoung("create") == 0 || byOld("run")+byOld("create") != made {
		t.Error("a new pod is run by the old program")
	}
	n.removeAll(t)
}
