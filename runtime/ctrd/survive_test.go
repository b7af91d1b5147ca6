package ctrd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/crisuite"
)

func (n *node) podConfig(i int) *api.PodSandboxConfig {
	return &api.PodSandboxConfig{
		Metadata: &api.PodSandboxMetadata{Name: fmt.Sprint("pod", i), Namespace: "test", Uid: fmt.Sprint("uid", i)},
		Hostname: fmt.Sprint("pod", i), LogDirectory: filepath.Join(n.dir, "logs", fmt.Sprint(i)),
		Linux: &api.LinuxPodSandboxConfig{CgroupParent: n.cgroup, SecurityContext: &api.LinuxSandboxSecurityContext{
			NamespaceOptions: &api.NamespaceOption{Pid: api.NamespaceMode_CONTAINER},
		}},
	}
}

func containerConfig(name string, args ...string) *api.ContainerConfig {
	return &api.ContainerConfig{
		Metadata: &api.ContainerMetadata{Name: name}, Image: &api.ImageSpec{Image: crisuite.ImageRef}, Args: args, LogPath: name + ".log",
		Linux: &api.LinuxContainerConfig{SecurityContext: &api.LinuxContainerSecurityContext{NamespaceOptions: &api.NamespaceOption{Pid: api.NamespaceMode_CONTAINER}}},
	}
}

// runPod runs a sandbox with one container and returns their IDs.
func (n *node) runPod(t testing.TB, i int, args ...string) (pod, id string) {
	t.Helper()
	return n.runContainer(t, i, containerConfig("main", args...))
}

func (n *node) runContainer(t testing.TB, i int, ctr *api.ContainerConfig) (pod, id string) {
	t.Helper()
	ctx := context.Background()
	cfg := n.podConfig(i)
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg, RuntimeHandler: n.handler})
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: ctr})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return s.PodSandboxId, c.ContainerId
}

func (n *node) status(t testing.TB, id string) *api.ContainerStatus {
	t.Helper()
	r, err := n.ContainerStatus(context.Background(), &api.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

func (n *node) sandboxState(t testing.TB, id string) api.PodSandboxState {
	t.Helper()
	r, err := n.PodSandboxStatus(context.Background(), &api.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.State
}

// eventually polls a condition for which no event exists.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if ok() {
			return
		}
		wait, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		<-wait.Done()
		cancel()
	}
	t.Fatalf("waited in vain: %s", what)
}

// commandLines returns the command lines of all processes by PID. Their arguments end with a zero byte. It reads /proc only once, because
// this costs the tests much of their CPU time.
func commandLines(t testing.TB) map[int]string {
	t.Helper()
	dir, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if b, err := os.ReadFile("/proc/" + name + "/cmdline"); err == nil && len(b) > 0 { // a kernel thread has no command line
			found[pid] = string(b)
		}
	}
	return found
}

// shims returns the command lines of the node's own shims by PID. If name is not empty, it returns only the shim of this name.
func (n *node) shims(t testing.TB, name string) map[int]string {
	t.Helper()
	found := commandLines(t)
	maps.DeleteFunc(found, func(_ int, line string) bool {
		args := strings.Split(line, "\x00")
		return len(args) < 4 || args[0] != n.shim || args[1] != "serve" || !strings.HasPrefix(args[3], n.run+"/") || name != "" && args[2] != name
	})
	return found
}

// shimProcess finds a shim by its name and returns its PID, or 0.
func (n *node) shimProcess(t testing.TB, name string) int {
	t.Helper()
	found := n.shims(t, name)
	for pid := range found {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		parent, fields := 0, strings.NewReplacer("(", " ", ")", " ").Replace(string(stat))
		if _, err := fmt.Sscan(fields, new(int), new(string), new(string), &parent); err != nil {
			continue // ended meanwhile
		}
		if _, child := found[parent]; !child { // until its exec, a child process of the shim has the same command line
			return pid
		}
	}
	return 0
}

// TestAgentRestart checks that running containers are not affected by a restart of the agent. The next agent reports the containers that
// have ended in the meantime.
func TestAgentRestart(t *testing.T) {
	n := newNode(t, 4)
	const pods = 6
	ids := map[int]string{}
	for i := range pods {
		_, ids[i] = n.runPod(t, i, "wait", "exit", strconv.Itoa(40+i))
	}
	pids := map[int]int{}
	for i, id := range ids {
		pids[i] = n.pid(t, id)
		eventually(t, "it waits for signals", func() bool {
			b, _ := os.ReadFile(n.status(t, id).LogPath)
			return strings.Contains(string(b), "waiting")
		})
	}
	n.stop(t)
	end := func(i int) {
		if err := unix.Kill(pids[i], unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the process ends", func() bool { return unix.Kill(pids[i], 0) == unix.ESRCH })
	}
	end(1)
	end(5)
	began := time.Now()
	n.start(t)
	t.Logf("adopted in %s, including the time to open the storage", time.Since(began))
	for i, id := range ids {
		if i == 1 || i == 5 {
			eventually(t, "the exit is recorded", func() bool { return n.status(t, id).State == api.ContainerState_CONTAINER_EXITED })
			if st := n.status(t, id); st.ExitCode != int32(40+i) || st.StartedAt == 0 || st.FinishedAt < st.StartedAt {
				t.Errorf("a container that ended meanwhile: %v", st)
			}
			continue
		}
		if st := n.status(t, id); st.State != api.ContainerState_CONTAINER_RUNNING || n.pid(t, id) != pids[i] {
			t.Errorf("a running container was not adopted: %v", st)
		}
	}
	// The next agent can stop these containers. Their logs have no gap.
	if _, err := n.StopContainer(t.Context(), &api.StopContainerRequest{ContainerId: ids[0], Timeout: 20}); err != nil {
		t.Fatal(err)
	}
	if st := n.status(t, ids[0]); st.ExitCode != 40 {
		t.Errorf("after the restart: %v", st)
	}
	b, err := os.ReadFile(n.status(t, ids[0]).LogPath)
	if err != nil || !strings.Contains(string(b), "signal terminated") {
		t.Errorf("log %q, %v", b, err)
	}
}

// TestSignalOnce checks that a container gets its stop signal only once, even if the agent restarts during the stop.
func TestSignalOnce(t *testing.T) {
	n := newNode(t, 1)
	_, id := n.runPod(t, 0, "once")
	logged := func(text string) {
		eventually(t, "it logs "+text, func() bool {
			b, _ := os.ReadFile(n.status(t, id).LogPath)
			return strings.Contains(string(b), text)
		})
	}
	logged("waiting")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		n.StopContainer(ctx, &api.StopContainerRequest{ContainerId: id, Timeout: 600}) // the call returns when its context ends
	}()
	logged("signal terminated")
	eventually(t, "the signal is recorded", func() bool {
		b, _ := os.ReadFile(filepath.Join(n.dir, "state", "containers", id, "record.json"))
		return strings.Contains(string(b), "signaled")
	})
	leave()
	<-left
	n.stop(t)
	n.start(t)
	if _, err := n.StopContainer(t.Context(), &api.StopContainerRequest{ContainerId: id, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	if st := n.status(t, id); st.ExitCode != 137 {
		t.Errorf("it was signaled again: %v", st)
	}
}

// pid returns the PID of a container's first process. The PID is part of the verbose status.
func (n *node) pid(t testing.TB, id string) int {
	t.Helper()
	r, err := n.ContainerStatus(context.Background(), &api.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil || info.Pid <= 1 {
		t.Fatalf("no PID in %s: %v", r.Info["info"], err)
	}
	return info.Pid
}

// TestShimDeath checks that the containers of a dead shim end. The containers of other shims keep running. The pods of the dead shim get a
// new shim.
func TestShimDeath(t *testing.T) {
	n := newNode(t, 2)
	ids := map[int]string{}
	pods := map[int]string{}
	for i := range 4 {
		pods[i], ids[i] = n.runPod(t, i, "ignore")
	}
	victim := n.shimProcess(t, "1")
	if victim == 0 {
		t.Fatal("no shim found")
	}
	pid := n.pid(t, ids[0])
	if err := unix.Kill(victim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		eventually(t, "the end of the container is recorded",
			func() bool { return n.status(t, ids[i]).State == api.ContainerState_CONTAINER_EXITED })
		if st := n.status(t, ids[i]); st.ExitCode != 137 || st.Reason != "ShimLost" {
			t.Errorf("container of the dead shim: %v", st)
		}
		if st := n.sandboxState(t, pods[i]); st != api.PodSandboxState_SANDBOX_READY {
			t.Errorf("its sandbox is %v", st)
		}
	}
	eventually(t, "its process is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	for i := 2; i < 4; i++ {
		if st := n.status(t, ids[i]); st.State != api.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container of another shim: %v", st)
		}
	}
	cfg := containerConfig("main", "ignore")
	cfg.Metadata.Attempt = 1
	c, err := n.CreateContainer(t.Context(), &api.CreateContainerRequest{PodSandboxId: pods[0], SandboxConfig: n.podConfig(0), Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.StartContainer(t.Context(), &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
}

// TestAgentStoppedWhileStarting checks an agent that is stopped while it starts. It ends no container, and the next agent adopts all.
func TestAgentStoppedWhileStarting(t *testing.T) {
	n := newNode(t, 1)
	pids := map[string]int{}
	for i := range 2 {
		_, id := n.runPod(t, i, "ignore")
		pids[id] = n.pid(t, id)
	}
	n.stop(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.openRuntime(ended, slog.New(slog.NewTextHandler(testWriter{t}, nil)), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the start has ended with %v", err)
	}
	if err := n.daemon.Close(); err != nil {
		t.Error(err)
	}
	n.start(t)
	for id, pid := range pids {
		if st := n.status(t, id); st.State != api.ContainerState_CONTAINER_RUNNING || n.pid(t, id) != pid {
			t.Errorf("a container was not adopted: %v", st)
		}
	}
}

// TestShimAndAgentDeath checks a shim that dies while no agent is running.
func TestShimAndAgentDeath(t *testing.T) {
	n := newNode(t, 2)
	_, running := n.runPod(t, 0, "ignore")
	_, ended := n.runPod(t, 1, "exit", "9")
	eventually(t, "it ends", func() bool { return n.status(t, ended).State == api.ContainerState_CONTAINER_EXITED })
	victim := n.shimProcess(t, "1")
	n.stop(t)
	if err := unix.Kill(victim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shim is gone", func() bool { return n.shimProcess(t, "1") == 0 })
	n.start(t)
	if st := n.status(t, running); st.ExitCode != 137 || st.Reason != "ShimLost" {
		t.Errorf("the container that was running: %v", st)
	}
	if st := n.status(t, ended); st.ExitCode != 9 {
		t.Errorf("the container that had ended: %v", st)
	}
}

// TestRecordLostByPowerCut checks a power failure that destroys the record of a container whose ID was already reported. After the next
// boot, the container with the same attempt gets another ID. Within one boot, the same attempt always has the same ID, even after a restart
// of the agent.
func TestRecordLostByPowerCut(t *testing.T) {
	n := newNode(t, 2)
	pod, before := n.runPod(t, 0, "ignore")
	n.stop(t)
	n.start(t)
	if _, again := n.runPod(t, 0, "ignore"); again != before {
		t.Errorf("the same attempt in the same boot is container %s, not %s", again, before)
	}
	n.stop(t)
	n.reboot(t)
	for _, record := range []string{filepath.Join(n.dir, "state", "sandboxes", pod+".json"), filepath.Join(n.dir, "state", "containers", before, "record.json")} {
		if err := os.Truncate(record, 0); err != nil {
			t.Fatal(err)
		}
	}
	n.start(t)
	if _, after := n.runPod(t, 0, "ignore"); after == before {
		t.Error("a container has the ID of one that ran before the power cut")
	}
}

// TestReboot checks the containers after a reboot. No container is running, and no resource is left. Each container still has a status.
func TestReboot(t *testing.T) {
	n := newNode(t, 2)
	shared := n.podConfig(9)
	shared.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_POD
	s, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: shared})
	if err != nil {
		t.Fatal(err)
	}
	var ids, pods []string
	pods = append(pods, s.PodSandboxId)
	for i := range 3 {
		p, id := n.runPod(t, i, "ignore")
		pods, ids = append(pods, p), append(ids, id)
	}
	n.stop(t)
	n.reboot(t)
	n.start(t)
	for _, id := range ids {
		if st := n.status(t, id); st.State != api.ContainerState_CONTAINER_EXITED || st.ExitCode != 255 || st.Reason != "Unknown" ||
			st.StartedAt == 0 {
			t.Errorf("container: %v", st)
		}
	}
	for _, p := range pods {
		if st := n.sandboxState(t, p); st != api.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("sandbox: %v", st)
		}
	}
	// The same containers can be created and run again.
	for _, id := range ids {
		if _, err := n.RemoveContainer(t.Context(), &api.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
	}
	n.runPod(t, 0, "ignore")
}
