package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/hungfs"
	"github.com/islet-edge/islet/test/machine"
)

// makeUnreadable makes every access to the given directories fail with EIO, as on a disk with bad blocks.
func makeUnreadable(t *testing.T, m *machine.Machine, parts []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		m.Run(exe, hungfs.Process, filepath.Join(m.Disk, p))
	}
	for _, p := range parts { // each server has started when it has responded once
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

// podDir returns the entry of a directory whose name contains the UID of a pod.
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
	t.Fatalf("%s has no entry of pod %s", dir, uid)
	return ""
}

// TestUnreadable checks that the agent works although directories fail with EIO. They fail when the agent starts or while it runs. Some of
// the directories are in the state and root directories. Another one contains the logs of one pod. The containers of other pods must not
// restart, and a new pod must start.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
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
			t.Errorf("%s: the container of an unaffected pod is %s, was %s", when, id, before)
		}
	}

	makeUnreadable(t, m, parts) // the agent runs
	m.Write("manifests/new.yaml", manifest("new", "", "sleep"))
	whole("while directories fail", "new-edge")
	m.Kill()
	m.StartAgent()
	m.Write("manifests/newer.yaml", manifest("newer", "", "sleep"))
	whole("after a start", "new-edge", "newer-edge")
	if log := m.AgentLog(1 << 20); !strings.Contains(log, "input/output error") {
		t.Errorf("the log does not contain the error:\n%s", log)
	}
	for _, p := range parts {
		m.Run("umount", "-l", filepath.Join(m.Disk, p))
	}
	whole("when all can be read again", "new-edge", "newer-edge", "broken-edge")
}
