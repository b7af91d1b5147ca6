package crisuite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testAmbiguous checks that a list filter accepts a prefix of an ID only if the prefix is unique.
// Otherwise a client that uses the first result would get an arbitrary object.
func testAmbiguous(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	byFirst, all := map[byte]string{}, []string{}
	one, two := "", ""
	for n := 0; two == ""; n++ { // two of 17 IDs begin with the same digit
		id := b.create(pod, cfg, b.containerConfig(fmt.Sprint("c", n), "wait"))
		one, two = byFirst[id[0]], id
		if one == "" {
			two = ""
		}
		byFirst[id[0]], all = id, append(all, id)
	}
	shared := 0
	for one[shared] == two[shared] {
		shared++
	}
	b.start(one)
	exited := &api.ContainerStateValue{State: api.ContainerState_CONTAINER_EXITED}
	for name, c := range map[string]struct {
		filter *api.ContainerFilter
		want   []string
	}{
		"an ambiguous prefix":           {&api.ContainerFilter{Id: one[:shared]}, nil},
		"an ambiguous prefix, with pod": {&api.ContainerFilter{Id: one[:shared], PodSandboxId: pod}, nil},
		"a whole ID":                    {&api.ContainerFilter{Id: one, PodSandboxId: pod}, []string{one}},
		"unique prefixes":               {&api.ContainerFilter{Id: one[:len(one)-1], PodSandboxId: pod[:len(pod)-1]}, []string{one}},
		"longer than an ID":             {&api.ContainerFilter{Id: one + "0"}, nil},
		"another pod":                   {&api.ContainerFilter{Id: one, PodSandboxId: "0123456789abcdef"}, nil},
		"another state":                 {&api.ContainerFilter{Id: one, State: exited}, nil},
		"another label":                 {&api.ContainerFilter{Id: one, LabelSelector: map[string]string{"name": "other"}}, nil},
		"the label of another container": {&api.ContainerFilter{
			PodSandboxId: pod, LabelSelector: map[string]string{"test": b.uid, "name": "c0"},
		}, all[:1]},
	} {
		list := must(b.Runtime.ListContainers(b.ctx, &api.ListContainersRequest{Filter: c.filter}))(b)
		var got []string
		for _, s := range list.Containers {
			got = append(got, s.Id)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if _, err := b.Runtime.ContainerStatus(b.ctx, &api.ContainerStatusRequest{ContainerId: one[:shared]}); err == nil {
		t.Error("the status of an ambiguous prefix succeeded")
	}
	if b.Kernel {
		if list := must(b.Runtime.ListContainerStats(b.ctx, &api.ListContainerStatsRequest{
			Filter: &api.ContainerStatsFilter{Id: one[:shared]},
		}))(b); len(list.Stats) > 0 {
			t.Errorf("the statistics of an ambiguous prefix: %v", list.Stats)
		}
	}
}

// testVerbose checks that the verbose information contains the OCI specification, from which tools
// read the paths of namespaces.
func testVerbose(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	id := b.create(pod, cfg, b.containerConfig("main", "wait"))
	b.start(id)
	for name, info := range map[string]map[string]string{
		"container": must(b.Runtime.ContainerStatus(b.ctx, &api.ContainerStatusRequest{ContainerId: id, Verbose: true}))(b).Info,
		"sandbox":   must(b.Runtime.PodSandboxStatus(b.ctx, &api.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true}))(b).Info,
	} {
		var got struct{ RuntimeSpec specs.Spec }
		if err := json.Unmarshal([]byte(info["info"]), &got); err != nil || got.RuntimeSpec.Linux == nil {
			t.Errorf("%s: %v in %v", name, err, info)
			continue
		}
		for _, want := range []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
			i := slices.IndexFunc(got.RuntimeSpec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == want })
			if i < 0 || name == "container" && !filepath.IsAbs(got.RuntimeSpec.Linux.Namespaces[i].Path) {
				t.Errorf("%s: no %s namespace among %v", name, want, got.RuntimeSpec.Linux.Namespaces)
			}
		}
		args := got.RuntimeSpec.Process
		if name == "container" && (got.RuntimeSpec.Linux.CgroupsPath == "" || args == nil || !slices.Contains(args.Args, "wait")) {
			t.Errorf("%s: no cgroup, or no process, in %s", name, info["info"])
		}
	}
}

// testRefused checks that invalid requests are rejected with the right error code.
func testRefused(t *testing.T, b *bench) {
	const nothing = "0123456789abcdef"
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	created, main := b.create(pod, cfg, b.containerConfig("created", "wait")), b.create(pod, cfg, b.containerConfig("main", "wait"))
	b.start(main)
	ended := b.create(pod, cfg, b.containerConfig("ended", "exit", "0"))
	b.start(ended)
	b.awaitEnd(ended)
	if _, err := b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{ContainerId: main}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no command: %v", err)
	}
	for id, is := range map[string]func(error) bool{
		nothing: errdefs.IsNotFound, created: errdefs.IsFailedPrecondition, ended: errdefs.IsFailedPrecondition,
	} {
		_, exec := b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog"}})
		_, reopen := b.Runtime.ReopenContainerLog(b.ctx, &api.ReopenContainerLogRequest{ContainerId: id})
		if !is(exec) || !is(reopen) {
			t.Errorf("%s: exec: %v, log: %v", id, exec, reopen)
		}
	}
	if _, err := b.Runtime.UpdateContainerResources(b.ctx, &api.UpdateContainerResourcesRequest{
		ContainerId: ended, Linux: &api.LinuxContainerResources{CpuShares: 100},
	}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("resources of an ended container: %v", err)
	}
	for _, err := range []error{
		secondResult(b.Runtime.ContainerStats(b.ctx, &api.ContainerStatsRequest{ContainerId: nothing})),
		secondResult(b.Runtime.PodSandboxStats(b.ctx, &api.PodSandboxStatsRequest{PodSandboxId: nothing})),
		secondResult(b.Runtime.UpdateContainerResources(b.ctx, &api.UpdateContainerResourcesRequest{
			ContainerId: nothing, Linux: &api.LinuxContainerResources{},
		})),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("a missing container: %v", err)
		}
	}
	if _, err := b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{
		ContainerId: main, Cmd: []string{"/prog", "ignore"}, Timeout: 1,
	}); !timedOut(err) {
		t.Errorf("a command that exceeds its timeout: %v", err)
	}
	stats := must(b.Runtime.ContainerStats(b.ctx, &api.ContainerStatsRequest{ContainerId: ended}))(b).Stats
	if stats.GetAttributes().GetId() != ended || stats.GetCpu() != nil || stats.GetMemory() != nil {
		t.Errorf("statistics of an ended container: %v", stats)
	}
}

// testForwardStopped checks that Forward returns an error for a stopped sandbox. It must not
// connect to a port of the host.
func testForwardStopped(t *testing.T, b *bench) {
	s := b.streamer()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	pod := b.runPod(b.podConfig(func(c *api.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = api.NamespaceMode_NODE
	}))
	must(b.Runtime.StopPodSandbox(b.ctx, &api.StopPodSandboxRequest{PodSandboxId: pod}))(b)
	ours, theirs := net.Pipe()
	ours.Close()
	if err := s.Forward(b.ctx, pod, int32(l.Addr().(*net.TCPAddr).Port), theirs); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("forwarded with %v", err)
	}
}

func secondResult[T any](_ T, err error) error { return err }

// timedOut reports whether err is context.DeadlineExceeded or a gRPC error with this code.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// testLittleMemory checks the error of a container that cannot start because its memory limit is
// too low. The error must contain the limit.
func testLittleMemory(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "wait")
	c.Linux.Resources.MemoryLimitInBytes = 4096
	id := b.create(pod, cfg, c)
	const want = "its memory limit is 4096 bytes"
	_, err := b.Runtime.StartContainer(b.ctx, &api.StartContainerRequest{ContainerId: id})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("started: %v", err)
	}
	if st := b.status(id); st.Reason != "StartError" || !strings.Contains(st.Message, want) {
		t.Errorf("status: %v", st)
	}
}
