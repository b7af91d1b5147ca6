package crisuite

import (
	"fmt"
	"os"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// inNamespaceOf returns the configuration of a container that joins the PID namespace of another
// container, its target.
func (b *bench) inNamespaceOf(name, target string, args ...string) *api.ContainerConfig {
	c := b.containerConfig(name, args...)
	c.Linux.SecurityContext.NamespaceOptions = &api.NamespaceOption{Pid: api.NamespaceMode_TARGET, TargetId: target}
	return c
}

// namespaceOf returns the identity of a namespace of a process, such as pid:[4026531836].
func namespaceOf(b *bench, pid int, kind string) string {
	b.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		b.Fatal(err)
	}
	return ns
}

// testTarget checks containers in the PID namespace of another container, as for kubectl debug.
// They share only the PID namespace, have no more privileges than other containers, and end with
// their target.
func testTarget(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	confine := func(c *api.ContainerConfig) {
		c.Linux.SecurityContext.MaskedPaths = []string{"/proc/kcore", "/proc/keys"}
		c.Linux.SecurityContext.ReadonlyPaths = []string{"/proc/sys"}
	}
	main := b.containerConfig("main", "wait")
	confine(main)
	target := b.create(pod, cfg, main)
	b.start(target)
	b.awaitLog(main, "waiting")

	debug := b.inNamespaceOf("debug", target, "wait")
	confine(debug)
	debug.Linux.Resources.OomScoreAdj = 500
	id := b.create(pod, cfg, debug)
	b.start(id)
	b.awaitLog(debug, "waiting")
	its, targets := b.containerPID(id), b.containerPID(target)
	if got, want := namespaceOf(b, its, "pid"), namespaceOf(b, targets, "pid"); got != want || got == namespaceOf(b, os.Getpid(), "pid") {
		t.Errorf("the container is in %s, its target in %s", got, want)
	}
	if namespaceOf(b, its, "mnt") == namespaceOf(b, targets, "mnt") {
		t.Error("the container shares the mount namespace of its target")
	}
	a := allowance{"0", defaultCaps, "0", "0", 500, false}
	b.expectAllowed("a container with a target", its, a)
	b.expectPaths("a container with a target", its, debug.Linux.SecurityContext.MaskedPaths, debug.Linux.SecurityContext.ReadonlyPaths)
	b.expectExec(id, "a container with a target", a)
	if out := must(b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"/prog", "read", "/proc/1/cmdline"}, Timeout: 60,
	}))(b); !strings.Contains(string(out.Stdout), "wait") {
		t.Errorf("process 1 is %q", out.Stdout)
	}

	must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: target}))(b)
	b.waitUntil("the container to end with its target", func() bool {
		st := must(b.Runtime.ContainerStatus(b.ctx, &api.ContainerStatusRequest{ContainerId: id}))(b)
		return st.Status.State == api.ContainerState_CONTAINER_EXITED
	})
}

// testNoTarget checks that a target is rejected if it does not exist, belongs to another pod, or is not running. A target that ends between
// the create and the start of the container is rejected too.
func testNoTarget(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	other := b.podConfig(func(c *api.PodSandboxConfig) { c.Metadata.Name, c.Metadata.Uid = "other", b.uid+"-other" })
	stranger := b.containerConfig("stranger", "wait")
	foreign := b.create(b.runPod(other), other, stranger)
	b.start(foreign)
	made := b.create(pod, cfg, b.containerConfig("made", "wait"))
	_, ended := b.runForOutput(pod, cfg, b.containerConfig("ended", "exit", "0"))
	for target, want := range map[string]string{
		"": "", "nonsense": "", foreign: "does not belong to", made: "is not running", ended.Id: "is not running",
	} {
		c := b.inNamespaceOf("debug", target, "wait")
		err := b.tryCreate(pod, cfg, c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("target %q: %v", target, err)
		}
	}
	list := must(b.Runtime.ListContainers(b.ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{PodSandboxId: pod}}))(b)
	for _, c := range list.Containers {
		if c.Metadata.Name == "debug" {
			t.Errorf("a rejected container exists: %v", c)
		}
	}

	main := b.containerConfig("main", "wait")
	target := b.create(pod, cfg, main)
	b.start(target)
	b.awaitLog(main, "waiting")
	id := b.create(pod, cfg, b.inNamespaceOf("late", target, "wait"))
	must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: target}))(b)
	if _, err := b.Runtime.StartContainer(b.ctx, &api.StartContainerRequest{ContainerId: id}); err == nil {
		t.Errorf("the container runs in %s, although its target has ended", namespaceOf(b, b.containerPID(id), "pid"))
	}
}
