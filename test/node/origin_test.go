package node

import (
	"strings"
	"testing"
)

// TestOrigin checks that a node names the file or command from which a pod comes, and the configuration files in use. The node must reject
// a manifest of another node.
func TestOrigin(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/one.yaml", manifest("one", "", "sleep"))
	m.Write("two.yaml", manifest("two", "", "sleep"))
	m.Write("other.yaml", manifest("other", "  nodeName: edge-2\n", "sleep"))
	m.StartAgent()
	m.Islet("apply", "-f", m.Disk+"/two.yaml")
	m.WaitReady("one-edge", "two")
	if out, code := m.Try("apply", "-f", m.Disk+"/other.yaml"); code == 0 || !strings.Contains(out, "spec.nodeName") {
		t.Errorf("a pod of another node: exit code %d\n%s", code, out)
	}
	wide := m.Islet("pods", "-o", "wide")
	for pod, want := range map[string]string{"one-edge": m.Disk + "/manifests/one.yaml", "two": "islet apply"} {
		if out := m.Islet("describe", pod); !strings.Contains(out, "\nOrigin:           "+want+"\n") {
			t.Errorf("%s does not come from %q:\n%s", pod, want, out)
		}
		if !strings.Contains(wide, want+"\n") {
			t.Errorf("%q is not in:\n%s", want, wide)
		}
	}
	files := m.Disk + "/kubelet.yaml, " + m.Disk + "/edge.yaml\n"
	if out, _ := m.Try("status"); !strings.Contains(out, files) {
		t.Errorf("status does not name %s:\n%s", files, out)
	}
	if out := m.Islet("config", "show"); !strings.Contains(out, "Files: "+files) {
		t.Errorf("config show does not name %s:\n%s", files, out)
	}
}
