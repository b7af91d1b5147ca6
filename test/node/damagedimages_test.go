package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedImages damages containerd's databases while no agent runs. The agent must start, no container may restart or lose a file, and
// a new pod must start: its image is imported from the archive again. The same holds after a reboot, and islet cleanup must work.
func TestDamagedImages(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/one.yaml", manifest("one", "", "sleep"))
	m.StartAgent()
	before := containers(m.WaitReady("one-edge"))
	damage := func(name string) {
		t.Helper()
		path := filepath.Join(m.Disk, "state/containerd", name)
		b, err := os.ReadFile(path)
		if err == nil {
			clear(b[2*os.Getpagesize():])
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"meta.db", "overlayfs/metadata.db"} {
		m.Kill()
		damage(name)
		m.StartAgent()
		m.Write("manifests/new.yaml", manifest("new", "", "sleep"))
		if now := m.WaitReady("one-edge", "new-edge"); changed(before, now) != 0 {
			t.Errorf("%s is damaged: containers were replaced: %v, before %v", name, containers(now), before)
		}
		if out := m.Islet("exec", "one-edge", "--", "/podtool", "cat", "/etc/hostname"); out != "one-edge\n" {
			t.Errorf("%s is damaged: the program of a running container prints %q", name, out)
		}
		if out, _ := m.Try("status"); !strings.Contains(out, name+" could not be used") {
			t.Errorf("%s is damaged: the status is\n%s", name, out)
		}
		m.Remove("manifests/new.yaml")
		m.WaitReady("one-edge")
	}
	m.PowerOff()
	damage("meta.db")
	m.Boot()
	m.StartAgent()
	m.WaitReady("one-edge")
	m.Await("the layers of containers that ended with the reboot to be removed", func() bool {
		left, err := filepath.Glob(m.Disk + "/state/containerd/overlayfs/snapshots.corrupt-*")
		return err == nil && len(left) == 0
	})
	m.Stop()
	damage("meta.db")
	if out, code := m.Try("cleanup", "--root-dir="+m.Disk+"/kubelet", "--state-dir="+m.Disk+"/state", "--run-dir=/run/islet",
		"--config="+m.Disk+"/kubelet.yaml", "--edge-config="+m.Disk+"/edge.yaml"); code != 0 {
		t.Errorf("cleanup: exit code %d\n%s", code, out)
	}
	if left := m.ContainerProcesses(); len(left) > 0 {
		t.Errorf("containers still run: %v", left)
	}
}
