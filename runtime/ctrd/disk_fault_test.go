package ctrd_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unreadable makes a file unreadable until mend is called. The kernel then returns EIO when the file is read and EBUSY when it is removed.
func unreadable(t *testing.T, path string) (mend func()) {
	t.Helper()
	if err := unix.Mount("/proc/self/mem", path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	mend = func() { unix.Unmount(path, unix.MNT_DETACH) }
	t.Cleanup(mend)
	if _, err := os.ReadFile(path); err == nil {
		t.Fatal("it can be read")
	}
	return mend
}

// TestRecordsOnAFailingDisk checks that a record that cannot be read affects only its own pod, which is restarted. This is also true if the
// container has no shim and no bundle.
func TestRecordsOnAFailingDisk(t *testing.T) {
	n := newNode(t, 1)
	pods, ids, pids := map[int]string{}, map[int]string{}, map[int]int{}
	for i := range 4 {
		pods[i], ids[i] = n.runPod(t, i, "ignore")
		pids[i] = n.pid(t, ids[i])
	}
	n.stop(t)
	sandboxRecord := filepath.Join(n.dir, "state", "sandboxes", pods[0]+".json")
	mend := []func(){
		unreadable(t, sandboxRecord),
		unreadable(t, filepath.Join(n.dir, "state", "containers", ids[1], "record.json")),
		unreadable(t, filepath.Join(n.dir, "state", "containers", ids[2], "record.json")),
	}
	if err := os.Remove(filepath.Join(n.run, "s", "3")); err != nil { // removes the socket of the shim of pod 2
		t.Fatal(err)
	}
	n.start(t)
	if st := n.status(t, ids[3]); st.State != api.ContainerState_CONTAINER_RUNNING || n.pid(t, ids[3]) != pids[3] {
		t.Errorf("the container with a readable record: %v", st)
	}
	for i := range 3 {
		eventually(t, "a container without a readable record is killed", func() bool { return unix.Kill(pids[i], 0) == unix.ESRCH })
		if _, err := n.ContainerStatus(t.Context(), &api.ContainerStatusRequest{ContainerId: ids[i]}); err == nil {
			t.Errorf("container %d has a status without its record", i)
		}
	}
	// The pods run again while their records can be neither read nor removed. The next agent finds the new containers.
	again := map[int]string{}
	for i := range 3 {
		_, again[i] = n.runPod(t, i, "ignore")
	}
	n.stop(t)
	n.start(t)
	for i := range 3 {
		if st := n.status(t, again[i]); st.State != api.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the new container of pod %d is %v", i, st.State)
		}
		if _, id := n.runPod(t, i, "ignore"); id != again[i] {
			t.Errorf("container %d was created a second time", i)
		}
	}
	for _, m := range mend {
		m()
	}
	n.stop(t)
	n.start(t)
	for i := range 3 { // as the agent does for a pod without a container
		cfg := n.podConfig(i)
		cfg.Metadata.Attempt = 1
		s, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		c, err := n.CreateContainer(t.Context(), &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: containerConfig("main", "ignore")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.StartContainer(t.Context(), &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
			t.Fatal(err)
		}
	}
}
