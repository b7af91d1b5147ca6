package ctrd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/fusetest"
)

// hangingOCI restarts a node with another OCI runtime. While the file hang exists, the OCI runtime does not start a container: it enters
// the container's cgroup, writes its PID into the file hanging, and executes a command that does not end.
func hangingOCI(t *testing.T, n *node, command string) (hang, hanging string) {
	t.Helper()
	oci, dir := n.ociProgram(t), t.TempDir()
	hang, hanging, n.oci = filepath.Join(dir, "hang"), filepath.Join(dir, "hanging"), filepath.Join(dir, "oci")
	script := fmt.Sprintf(`#!/bin/sh
case " $* " in *" run "*|*" create "*)
	if [ -e %s ]; then
		all="$*"
		bundle=${all#*--bundle }
		group=$(sed 's/.*"cgroupsPath":"\([^"]*\)".*/\1/' "${bundle%%%% *}/config.json")
		dir=/sys/fs/cgroup$group
		[ -e /sys/fs/cgroup/cgroup.controllers ] || dir=/sys/fs/cgroup/memory$group
		mkdir -p "$dir"
		echo $$ >"$dir/cgroup.procs"
		echo $$ >%s
		exec %s
	fi
esac
exec %s "$@"
`, hang, hanging, command, oci)
	if err := os.WriteFile(n.oci, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	n.start(t)
	return hang, hanging
}

// TestStopDuringStart checks the stop of a container whose start does not end. The stop returns when its context ends, or when the start
// was ended. Other containers of the same shim start and stop meanwhile, and survive a restart of the agent.
func TestStopDuringStart(t *testing.T) {
	if systemd() {
		t.Skip("hangingOCI needs the path of the container's cgroup, which systemd chooses")
	}
	n := newNode(t, 64)
	hang, hanging := hangingOCI(t, n, "sleep 1000")
	_, bystander := n.runPod(t, 0, "ignore")
	pid := n.pid(t, bystander)
	ctx := context.Background()
	id, result := n.startHanging(t, hang, hanging)
	n.stopPod(t, n.runOther(t, 2))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err := n.StopContainer(cancelled, &api.StopContainerRequest{ContainerId: id})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the stop with a context that has ended: %v", err)
	}
	if _, err := n.StopContainer(ctx, &api.StopContainerRequest{ContainerId: id}); err != nil {
		t.Error(err)
	}
	if err := <-result; err == nil {
		t.Error("the start was successful")
	}
	if st := n.status(t, id); st.State != api.ContainerState_CONTAINER_EXITED || st.Reason != "StartError" {
		t.Errorf("it is %v", st)
	}
	n.stop(t)
	n.start(t)
	if n.pid(t, bystander) != pid || dead(pid) {
		t.Error("another container of the shim was restarted")
	}
}

// startHanging starts a container in a goroutine, and returns when its OCI runtime hangs. Later starts do not hang.
func (n *node) startHanging(t *testing.T, hang, hanging string) (id string, result <-chan error) {
	t.Helper()
	if err := os.WriteFile(hang, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cfg := context.Background(), n.podConfig(1)
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.CreateContainer(ctx, &api.CreateContainerRequest{
		PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: containerConfig("main", "ignore"),
	})
	if err != nil {
		t.Fatal(err)
	}
	started, agent := make(chan error, 1), n.Runtime
	go func() {
		_, err := agent.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId})
		started <- err
	}()
	eventually(t, "the OCI runtime hangs", func() bool { b, err := os.ReadFile(hanging); return err == nil && len(b) > 0 })
	if err := errors.Join(os.Remove(hang), os.Remove(hanging)); err != nil {
		t.Fatal(err)
	}
	return c.ContainerId, started
}

// TestRestartDuringStart checks a restart of the agent while the OCI runtime of a container waits in the kernel and cannot be killed. The
// other containers of the shim survive, and pods start and stop. When the OCI runtime has ended, the pod can be removed.
func TestRestartDuringStart(t *testing.T) {
	if systemd() {
		t.Skip("hangingOCI needs the path of the container's cgroup, which systemd chooses")
	}
	volume := t.TempDir()
	end := fusetest.MountDeaf(t, volume)
	n := newNode(t, 64)
	defer end() // before the node is removed
	hang, hanging := hangingOCI(t, n, "stat "+volume+"/file")
	_, bystander := n.runPod(t, 0, "ignore")
	pid := n.pid(t, bystander)
	id, result := n.startHanging(t, hang, hanging)
	n.stop(t)
	<-result
	n.start(t)
	if n.pid(t, bystander) != pid || dead(pid) {
		t.Error("another container of the shim was restarted")
	}
	n.stopPod(t, n.runOther(t, 2))
	end()
	n.removeAll(t)
	for _, dir := range cgroupDirs(n.cgroup) { // the agent removes them with the cgroup of the pod
		eventually(t, "the cgroup is empty", func() bool {
			err := os.Remove(filepath.Join(dir, id))
			return err == nil || os.IsNotExist(err)
		})
	}
}

// runOther runs another pod and returns its ID.
func (n *node) runOther(t *testing.T, i int) string {
	t.Helper()
	pod, _ := n.runPod(t, i, "ignore")
	return pod
}

func (n *node) stopPod(t *testing.T, id string) {
	t.Helper()
	if _, err := n.StopPodSandbox(context.Background(), &api.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Error(err)
	}
}

// TestUnknownIsLeft checks the start of an agent that cannot remove the container of a lost record, because the OCI runtime cannot delete
// it. The agent starts, other pods continue to run, and the container is created again with another ID. A later start removes the rest.
func TestUnknownIsLeft(t *testing.T) {
	n := newNode(t, 64)
	fails, calls := n.failingDelete(t)
	_, bystander := n.runPod(t, 0, "ignore")
	_, lost := n.runPod(t, 1, "ignore")
	pid := n.pid(t, bystander)
	n.stop(t)
	if err := errors.Join(os.RemoveAll(filepath.Join(n.dir, "state/containers", lost)), os.WriteFile(fails, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	before := calls("delete")
	n.start(t)
	if n.pid(t, bystander) != pid || dead(pid) {
		t.Error("another container of the shim was restarted")
	}
	if _, id := n.runPod(t, 1, "ignore"); id == lost || n.pid(t, id) == 0 {
		t.Errorf("the new container is %s", id)
	}
	n.stop(t)
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	if calls("delete") == before {
		t.Error("the container was not deleted")
	}
}

// failingDelete restarts a node with an OCI runtime whose command delete fails while the returned file exists.
func (n *node) failingDelete(t *testing.T) (fails string, calls func(verb string) int) {
	t.Helper()
	program, calls := n.wrapper(t, "oci")
	fails = filepath.Join(filepath.Dir(program), "fails")
	script, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\ncase \" $* \" in *\" delete \"*) [ -e " + fails + " ] && exit 1; esac\n" + string(script)
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	n.oci = program
	n.start(t)
	return fails, calls
}

// TestUnknownIsKilled checks containers whose shims have died, whose records are lost and which the OCI runtime cannot delete. The start of
// the agent kills their processes, whether the record or its whole directory is lost.
func TestUnknownIsKilled(t *testing.T) {
	n := newNode(t, 1)
	fails, _ := n.failingDelete(t)
	var pids []int
	var lost []string
	for i, name := range []string{"record.json", ""} {
		_, id := n.runPod(t, i, "ignore")
		pids = append(pids, n.pid(t, id))
		lost = append(lost, filepath.Join(n.dir, "state/containers", id, name))
	}
	shims := n.shims(t, "")
	n.stop(t)
	for pid := range shims {
		unix.Kill(pid, unix.SIGKILL)
		eventually(t, "the shim is dead", func() bool { return dead(pid) })
	}
	for _, path := range lost {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	for _, pid := range pids {
		if !dead(pid) {
			t.Errorf("process %d was not killed", pid)
		}
	}
	n.stop(t)
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	n.start(t)
}
