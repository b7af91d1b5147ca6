package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/hungfs"
	"github.com/islet-edge/islet/test/machine"
)

// makeUnreadable makes directories answer EIO to everything. A disk whose directories lost blocks
// does so.
func makeUnreadable(t *testing.T, m *machine.Machine, parts []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		m.Run(exe, hungfs.Process, filepath.Join(m.Disk, p))
	}
	for _, p := range parts { // each server is there when it has answered once
		m.Run("ls", filepath.Join(m.Disk, p))
	}
	signalAll(t, len(parts), servers(m), hungfs.Broken)
	for _, p := range parts {
		m.Await(p+" to be unreadable", func() bool {
			out, err := m.Command("ls", filepath.Join(m.Disk, p)).CombinedOutput()
			return err != nil && strings.Contains(string(out), "Input/output error")
		})
	}
}

// podDir names a directory of a pod by its UID.
func podDir(t *testing.T, m *machine.Machine, dir, uid string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(m.Disk, dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), uid) {
			return filepath.Join(dir, e.Name())
		}
	}
	t.Fatalf("%s has nothing of %s", dir, uid)
	return ""
}

// TestUnreadable: directories of the state and root directory, and that of a pod's logs, fail with EIO, at the start of the
// agent and while it runs. The agent starts and goes on, every pod that they do not concern keeps
// its container, and a new one starts.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	for _, name := range []string{"whole", "broken"} {
		m.Write("manifests/"+name+".yaml", manifest(name,
			"    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {}}]\n", "sleep"))
	}
	m.StartAgent()
	pods := m.WaitReady("whole-edge", "broken-edge")
	before := pods["whole-edge"].Status.ContainerStatuses[0].ContainerID
	uid := pods["broken-edge"].Metadata.UID
	parts := []string{
		"kubelet/device-plugins", "kubelet/pod-resources", "kubelet/pods-api", "kubelet/plugins_registry", "kubelet/plugins",
		"state/images", podDir(t, m, "logs", uid),
	}
	whole := func(when string, others ...string) {
		t.Helper()
		now := m.WaitPods("pods to be ready "+when, func(all map[string]machine.Pod) bool {
			for _, name := range append(others, "whole-edge") {
				if !all[name].Ready() {
					return false
				}
			}
			return true
		})
		if id := now["whole-edge"].Status.ContainerStatuses[0].ContainerID; id != before {
			t.Errorf("%s: the container of a pod that is not concerned is %s, was %s", when, id, before)
		}
	}

	makeUnreadable(t, m, parts) // while the agent runs
	m.Write("manifests/new.yaml", manifest("new", "", "sleep"))
	whole("while directories fail", "new-edge")
	m.Kill()
	m.StartAgent()
	m.Write("manifests/newer.yaml", manifest("newer", "", "sleep"))
	whole("after a start", "new-edge", "newer-edge")
	if log := m.AgentLog(1 << 20); !strings.Contains(log, "input/output error") {
		t.Errorf("the log does not say what fails:\n%s", log)
	}
	for _, p := range parts {
		m.Run("umount", "-l", filepath.Join(m.Disk, p))
	}
	whole("when all can be read again", "new-edge", "newer-edge", "broken-edge")
}
