package crisuite

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

func (b *bench) exec(id string, args ...string) *api.ExecSyncResponse {
	b.Helper()
	return must(b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: append([]string{"/prog"}, args...), Timeout: 120}))(b)
}

func testExec(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "wait")
	c.Envs = []*api.KeyValue{{Key: "OWN", Value: []byte("x")}}
	c.Linux.SecurityContext.RunAsUser = &api.Int64Value{Value: 42}
	id := b.create(pod, cfg, c)
	b.start(id)
	r := b.exec(id, "print", "out", "eprint", "err", "env", "OWN", "cwd", "id", "exit", "3")
	if string(r.Stdout) != "out\nx\n/tmp\n42 0 [0]\n" || string(r.Stderr) != "err\n" || r.ExitCode != 3 {
		t.Errorf("got %q, %q, %d", r.Stdout, r.Stderr, r.ExitCode)
	}
	if _, err := b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"/no/such"},
	}); err == nil || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("a missing command: %v", err)
	}
	if s, ok := b.Runtime.(cri.Streamer); ok {
		for _, tty := range []bool{false, true} {
			var out, errs buffer
			o := cri.ExecOptions{Command: []string{"/no/such"}, TTY: tty, Stdout: &out}
			if !tty {
				o.Stderr = &errs
			}
			if err := s.Stream(b.ctx, id, o); err == nil || !strings.Contains(err.Error(), "/no/such") || out.String()+errs.String() != "" {
				t.Errorf("the error is reported twice: %v, printed %q and %q", err, out.String(), errs.String())
			}
		}
	}
	if r := b.exec(id, "lines", "100000"); len(r.Stdout) != 588890 {
		t.Errorf("%d bytes of output", len(r.Stdout))
	}
}

func testExecTimeout(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	id := b.create(pod, cfg, b.containerConfig("main", "wait"))
	b.start(id)
	began := time.Now()
	_, err := b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "ignore"}, Timeout: 1})
	if err == nil || time.Since(began) > time.Minute {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	b.waitUntil("the command is killed", func() bool { return countPIDs(string(b.exec(id, "ls", "/proc").Stdout)) == 2 })
	if b.status(id).State != api.ContainerState_CONTAINER_RUNNING {
		t.Error("the container has ended too")
	}
}

// A buffer is an output stream that is safe for concurrent use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) Close() error { return nil }

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *bench) streamer() cri.Streamer {
	s, ok := b.Runtime.(cri.Streamer)
	if !ok {
		b.Skip("the runtime does not implement cri.Streamer")
	}
	return s
}

func testTerminal(t *testing.T, b *bench) {
	s := b.streamer()
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	id := b.create(pod, cfg, b.containerConfig("main", "wait"))
	b.start(id)
	sizes := make(chan cri.TerminalSize, 1)
	sizes <- cri.TerminalSize{Width: 91, Height: 33}
	var out buffer
	in, typing := io.Pipe()
	defer typing.Close()
	err := s.Stream(b.ctx, id, cri.ExecOptions{
		Command: []string{"/prog", "size", "exit", "4"}, TTY: true, Stdin: in, Stdout: &out, Resize: sizes,
	})
	var exit cri.ExitError
	if !errors.As(err, &exit) || exit.Code != 4 || !strings.Contains(out.String(), "91 33\r\n") {
		t.Errorf("%v, printed %q", err, out.String())
	}
	// Attach to a container with a terminal.
	c := b.containerConfig("tty", "size", "cat")
	c.Tty, c.Stdin = true, true
	id = b.create(pod, cfg, c)
	b.start(id)
	ctx, cancel := context.WithCancel(b.ctx)
	var echo buffer
	ended := make(chan error, 1)
	in2, typing2 := io.Pipe()
	sizes <- cri.TerminalSize{Width: 70, Height: 20}
	go func() {
		ended <- s.Stream(ctx, id, cri.ExecOptions{TTY: true, Stdin: in2, Stdout: &echo, Resize: sizes})
	}()
	b.waitUntil("the terminal has a size", func() bool { return strings.Contains(echo.String(), "70 20\r\n") })
	if _, err := io.WriteString(typing2, "typed\n"); err != nil {
		t.Fatal(err)
	}
	// The terminal echoes the text, and cat prints it.
	b.waitUntil("the terminal echoes", func() bool { return strings.Contains(echo.String(), "typed\r\ntyped\r\n") })
	cancel()
	<-ended
	typing2.Close()
	b.awaitLog(c, "typed\ntyped\n") // without the \r of the terminal
}

func testAttach(t *testing.T, b *bench) {
	s := b.streamer()
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "print", "before", "cat", "eprint", "end")
	c.Stdin, c.StdinOnce = true, true
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "before")
	var out, errs buffer
	if err := s.Stream(b.ctx, id, cri.ExecOptions{Stdin: strings.NewReader("some input\n"), Stdout: &out, Stderr: &errs}); err != nil {
		t.Error(err)
	}
	if out.String() != "some input\n" || errs.String() != "end\n" {
		t.Errorf("got %q and %q", out.String(), errs.String())
	}
	// The order of the two streams is undefined.
	if st := b.awaitEnd(id); st.ExitCode != 0 || !strings.Contains(b.readLog(c), "some input\n") || !strings.Contains(b.readLog(c),
		"end\n") {
		t.Errorf("%v, logged %q", st, b.readLog(c))
	}
	// The stdin of this container stays open. Stream returns when the client closes its stdin.
	c = b.containerConfig("open", "cat")
	c.Stdin = true
	id = b.create(pod, cfg, c)
	b.start(id)
	var echo buffer
	in, typing := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.Stream(b.ctx, id, cri.ExecOptions{Stdin: in, Stdout: &echo}) }()
	if _, err := io.WriteString(typing, "typed\n"); err != nil {
		t.Fatal(err)
	}
	b.waitUntil("cat prints the input", func() bool { return echo.String() == "typed\n" })
	typing.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if st := b.status(id); st.State != api.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after attach, the container is %v", st.State)
	}
}

func testForward(t *testing.T, b *bench) {
	s := b.streamer()
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "serve", "8080")
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "listening")
	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.Forward(b.ctx, pod, 8080, theirs) }()
	if _, err := io.WriteString(ours, "ping"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(ours, got); err != nil || string(got) != "ping" {
		t.Errorf("%q, %v", got, err)
	}
	ours.Close()
	<-ended
	_, theirs = net.Pipe()
	if err := s.Forward(b.ctx, pod, 8081, theirs); err == nil {
		t.Error("forwarded to a port without a listener")
	}
}

func testUpdate(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "sleep", "1ms", "wait")
	c.Linux.Resources.MemoryLimitInBytes = 512 << 20
	id := b.create(pod, cfg, c)
	b.start(id)
	must(b.Runtime.UpdateContainerResources(b.ctx, &api.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &api.LinuxContainerResources{MemoryLimitInBytes: 48 << 20},
	}))(b)
	if got := b.status(id).GetResources().GetLinux().GetMemoryLimitInBytes(); got != 48<<20 {
		t.Errorf("the status has %d", got)
	}
	if _, err := b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"/prog", "alloc", "200"}, Timeout: 120,
	}); err != nil {
		t.Fatal(err)
	} else if r := b.exec(id, "child", "alloc", "200"); r.ExitCode == 0 {
		t.Error("the new limit does not apply")
	}
}

func testStats(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "write", "/file", strings.Repeat("x", 10000), "alloc", "20", "wait")
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "allocated")
	st := must(b.Runtime.ContainerStats(b.ctx, &api.ContainerStatsRequest{ContainerId: id}))(b).Stats
	if st.GetAttributes().GetId() != id || st.GetMemory().GetWorkingSetBytes().GetValue() < 20<<20 ||
		st.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 || st.GetWritableLayer().GetUsedBytes().GetValue() < 10000 {
		t.Errorf("container: %v", st)
	}
	list := must(b.Runtime.ListContainerStats(b.ctx, &api.ListContainerStatsRequest{
		Filter: &api.ContainerStatsFilter{PodSandboxId: pod},
	}))(b)
	if len(list.Stats) != 1 {
		t.Errorf("list: %v", list)
	}
	ps := must(b.Runtime.PodSandboxStats(b.ctx, &api.PodSandboxStatsRequest{PodSandboxId: pod}))(b).Stats
	if len(ps.GetLinux().GetContainers()) != 1 || ps.GetLinux().GetMemory().GetWorkingSetBytes().GetValue() < 20<<20 {
		t.Errorf("pod: %v", ps)
	}
}
