package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCleanupWithoutRuntime checks that islet cleanup removes running pods although the OCI runtime that started them is not installed any
// more. The agent's shims must end.
func TestCleanupWithoutRuntime(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	program, err := exec.LookPath("runc") // it also runs with hybrid cgroups
	if err != nil {
		if program, err = exec.LookPath("crun"); err != nil {
			t.Skip("needs crun or runc")
		}
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(m.Disk, filepath.Base(program))
	m.Write(filepath.Base(program), string(data))
	if err := os.Chmod(own, 0o755); err != nil {
		t.Fatal(err)
	}
	m.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: "+m.Disk+"/cni\nociRuntime: "+own+"\n")
	m.Write("manifests/one.yaml", manifest("one", "", "sleep"))
	m.Write("manifests/two.yaml", manifest("two", "  shareProcessNamespace: true", "sleep"))
	m.StartAgent()
	m.WaitReady("one-edge", "two-edge")
	m.Stop()
	m.Remove(filepath.Base(program))
	if out, code := m.Try("cleanup", "--root-dir="+m.Disk+"/kubelet", "--state-dir="+m.Disk+"/state", "--run-dir=/run/islet",
		"--config="+m.Disk+"/kubelet.yaml", "--edge-config="+m.Disk+"/edge.yaml"); code != 0 {
		t.Errorf("cleanup: exit code %d\n%s", code, out)
	}
	if left := m.ContainerProcesses(); len(left) > 0 {
		t.Errorf("containers still run: %v", left)
	}
	if left, err := filepath.Glob(m.Disk + "/state/runtime/*/*"); err != nil || len(left) > 0 &&
		filepath.Base(filepath.Dir(left[0])) != "bin" {
		t.Errorf("left over: %v, %v", left, err)
	}
}
