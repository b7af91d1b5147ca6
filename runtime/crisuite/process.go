package crisuite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testExitCodes(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	for _, c := range []struct {
		args   []string
		code   int32
		reason string
	}{
		{[]string{"exit", "0"}, 0, "Completed"},
		{[]string{"exit", "7"}, 7, "Error"},
		{[]string{"exit", "255"}, 255, "Error"},
	} {
		_, st := b.runForOutput(pod, cfg, b.containerConfig("exit"+c.args[1], c.args...))
		if st.ExitCode != c.code || st.Reason != c.reason || st.FinishedAt < st.StartedAt {
			t.Errorf("%v: %v", c.args, st)
		}
	}
}

func testStop(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	for i, c := range []struct {
		verb    string
		ready   string // output when the signal handler is set
		change  func(*api.ContainerConfig)
		timeout int64
		code    int32
		log     string
	}{
		{"wait", "waiting", nil, 20, 0, "signal terminated"},
		{"wait", "waiting", func(c *api.ContainerConfig) { c.StopSignal = api.Signal_SIGNAL_SIGUSR1 }, 20, 0,
			"signal user defined signal 1"},
		{"ignore", "ignoring", nil, 1, 137, "ignoring"},
		{"wait", "waiting", nil, 0, 137, ""},
	} {
		cc := b.containerConfig(fmt.Sprint("case", i), c.verb)
		if c.change != nil {
			c.change(cc)
		}
		id := b.create(pod, cfg, cc)
		b.start(id)
		b.awaitLog(cc, c.ready)
		must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id, Timeout: c.timeout}))(b)
		signal := cc.StopSignal
		if signal == api.Signal_SIGNAL_RUNTIME_DEFAULT {
			signal = api.Signal_SIGNAL_SIGTERM // the default
		}
		if st := b.status(id); st.ExitCode != c.code || !strings.Contains(b.readLog(cc), c.log) || st.StopSignal != signal {
			t.Errorf("%s, %ds: %v, logged %q", c.verb, c.timeout, st, b.readLog(cc))
		}
	}
}

// testStopAgain checks that a container gets its stop signal only once if StopContainer is called
// again, for example to shorten the grace period or after the first call was canceled. The timeout
// of the later call applies.
func testStopAgain(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "once")
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "waiting")
	ctx, leave := context.WithCancel(b.ctx)
	left := make(chan error, 1)
	go func() {
		_, err := b.Runtime.StopContainer(ctx, &api.StopContainerRequest{ContainerId: id, Timeout: 600})
		left <- err
	}()
	b.awaitLog(c, "signal terminated")
	leave()
	if err := <-left; err == nil {
		t.Error("the first stop succeeded")
	}
	must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id, Timeout: 1}))(b)
	if st := b.status(id); st.ExitCode != 137 || strings.Contains(b.readLog(c), "again") {
		t.Errorf("stopped again: %v, logged %q", st, b.readLog(c))
	}
}

func testStartError(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main")
	c.Command = []string{"/no/such/program"}
	id := b.create(pod, cfg, c)
	_, err := b.Runtime.StartContainer(b.ctx, &api.StartContainerRequest{ContainerId: id})
	if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("started: %v", err)
	}
	st := b.status(id)
	if st.State != api.ContainerState_CONTAINER_EXITED || st.ExitCode == 0 || st.Reason != "StartError" ||
		!strings.Contains(st.Message, "/no/such/program") {
		t.Errorf("status: %v", st)
	}
}

func testLogs(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "print", "out", "eprint", "err", "lines", "5000")
	b.runForOutput(pod, cfg, c)
	raw, err := os.ReadFile(filepath.Join(b.logs, c.LogPath))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		part := strings.SplitN(line, " ", 4)
		if _, err := time.Parse(time.RFC3339Nano, part[0]); err != nil || part[2] != "F" {
			t.Fatalf("line %q", line)
		}
		count[part[1]]++
	}
	if count["stdout"] != 5001 || count["stderr"] != 1 {
		t.Errorf("lines: %v", count)
	}
}

func testLogRotation(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "print", "before", "cat")
	c.Stdin = true
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "before")
	path := filepath.Join(b.logs, c.LogPath)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	must(b.Runtime.ReopenContainerLog(b.ctx, &api.ReopenContainerLogRequest{ContainerId: id}))(b)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func testImage(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	if out, _ := b.runForOutput(pod, cfg, b.containerConfig("default")); out != "default\n" {
		t.Errorf("the image's command printed %q", out)
	}
	c := b.containerConfig("env", "env", "FROM", "env", "BOTH", "env", "OWN", "cwd", "read", "/second")
	c.Envs = []*api.KeyValue{{Key: "BOTH", Value: []byte("config")}, {Key: "OWN", Value: []byte("a=b c")}}
	if out, _ := b.runForOutput(pod, cfg, c); out != "image\nconfig\na=b c\n/tmp\nlayer\n" {
		t.Errorf("got %q", out)
	}
	c = b.containerConfig("dir", "cwd")
	c.WorkingDir = "/made/on/the/way"
	if out, _ := b.runForOutput(pod, cfg, c); out != "/made/on/the/way\n" {
		t.Errorf("got %q", out)
	}
	c = b.containerConfig("command")
	c.Command = []string{"/prog", "print", "own"}
	if out, _ := b.runForOutput(pod, cfg, c); out != "own\n" {
		t.Errorf("got %q", out)
	}
}

func testUsers(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	for name, c := range map[string]struct {
		set  func(*api.LinuxContainerSecurityContext)
		want string
	}{
		"root":     {func(*api.LinuxContainerSecurityContext) {}, "0 0 [0]"},
		"number":   {func(s *api.LinuxContainerSecurityContext) { s.RunAsUser = &api.Int64Value{Value: 999} }, "999 0 [0]"},
		"known":    {func(s *api.LinuxContainerSecurityContext) { s.RunAsUser = &api.Int64Value{Value: 1234} }, "1234 2345 [77 2345]"},
		"username": {func(s *api.LinuxContainerSecurityContext) { s.RunAsUsername = "nina" }, "1234 2345 [77 2345]"},
		"group": {func(s *api.LinuxContainerSecurityContext) {
			s.RunAsUser, s.RunAsGroup, s.SupplementalGroups = &api.Int64Value{Value: 5}, &api.Int64Value{Value: 6}, []int64{8, 7}
		}, "5 6 [6 7 8]"},
		"strict": {func(s *api.LinuxContainerSecurityContext) {
			s.RunAsUsername, s.SupplementalGroupsPolicy = "nina", api.SupplementalGroupsPolicy_Strict
		}, "1234 2345 [2345]"},
	} {
		cc := b.containerConfig(name, "id")
		c.set(cc.Linux.SecurityContext)
		out, st := b.runForOutput(pod, cfg, cc)
		if sortGroups(out) != c.want {
			t.Errorf("%s: %q (%v), want %q", name, out, st.Message, c.want)
		}
		u := st.GetUser().GetLinux()
		if said := sortGroups(fmt.Sprint(u.GetUid(), u.GetGid(), u.GetSupplementalGroups())); said != c.want {
			t.Errorf("%s: the status has %s, want %s", name, said, c.want)
		}
	}
	alone := b.containerConfig("alone", "id")
	alone.Linux.SecurityContext.RunAsGroup = &api.Int64Value{Value: 6}
	if err := b.tryCreate(pod, cfg, alone); err == nil {
		t.Error("a group without a user was accepted")
	}
	cc := b.containerConfig("nobody", "id")
	cc.Linux.SecurityContext.RunAsUsername = "stranger"
	if err := b.tryCreate(pod, cfg, cc); err == nil {
		t.Error("a user that is not in the image was accepted")
	}
}

// testOOM checks the status if the OOM killer kills the first process or a child process.
func testOOM(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	for name, args := range map[string][]string{"main": {"alloc", "200"}, "child": {"child", "alloc", "200"}} {
		c := b.containerConfig(name, args...)
		c.Linux.Resources.MemoryLimitInBytes = 48 << 20
		if _, st := b.runForOutput(pod, cfg, c); st.Reason != "OOMKilled" || st.ExitCode == 0 {
			t.Errorf("%s: %v", name, st)
		}
	}
	c := b.containerConfig("enough", "alloc", "10")
	c.Linux.Resources.MemoryLimitInBytes = 48 << 20
	if _, st := b.runForOutput(pod, cfg, c); st.Reason != "Completed" {
		t.Errorf("with enough memory: %v", st)
	}
}
