package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestCommands checks the commands that wait for pods and that look into them: apply --wait, wait, logs of several pods,
// cp without tar, top processes, images ls and system df.
func TestCommands(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.StartAgent()
	const extra = `    securityContext: {runAsUser: 1000}
    volumeMounts: [{name: data, mountPath: /data}, {name: fixed, mountPath: /fixed, readOnly: true}]
  volumes: [{name: data, emptyDir: {}}, {name: fixed, emptyDir: {}}]
`
	for _, name := range []string{"one", "two"} {
		text := strings.Replace(manifest(name, extra, "count", "100ms"), "{name: "+name+"}", "{name: "+name+", labels: {app: x}}", 1)
		m.Write(name+".yaml", text)
	}
	m.Await("the image", func() bool { return strings.Contains(m.Islet("images", "ls", "-q"), machine.Image) })
	out := m.Islet("apply", "--wait", "-f", m.Disk+"/one.yaml", "-f", m.Disk+"/two.yaml")
	for _, want := range []string{"pod/one created\n", "pod/two created\n", "pod/one ready\n", "pod/two ready\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("apply --wait: %q lacks %q", out, want)
		}
	}
	if out := m.Islet("wait", "-l", "app=x", "--for=jsonpath={.status.containerStatuses[0].state.running.startedAt}"); strings.Count(out, "condition met") != 2 {
		t.Errorf("wait: %q", out)
	}
	if out, code := m.Try("wait", "--timeout=10ms", "--for=Deleted", "one"); code != 1 || !strings.Contains(out, "it is Running") {
		t.Errorf("wait without an end: code %d, %q", code, out)
	}
	m.Await("the logs of two pods", func() bool {
		out := m.Islet("logs", "-l", "app=x", "--tail=-1")
		return strings.Contains(out, "[pod/one/c] 0\n[pod/one/c] 1\n") && strings.Contains(out, "[pod/two/c] 0\n[pod/two/c] 1\n")
	})
	if out := m.Islet("top", "processes", "one", "--no-headers"); strings.Count(out, "\n") != 1 ||
		!strings.Contains(out, "/podtool count 100ms") || !strings.Contains(out, "1000") {
		t.Errorf("top processes: %q", out)
	}
	// The commands also work while the image name of a pod is invalid.
	m.Write("wrong.yaml", strings.Replace(manifest("wrong", "", "count", "1s"), machine.Image, "Not an image", 1))
	m.Islet("apply", "-f", m.Disk+"/wrong.yaml")
	if out, code := m.Try("images", "prune", "--dry-run"); code != 0 {
		t.Errorf("images prune: code %d, %q", code, out)
	}
	if out := m.Islet("images", "ls", "--no-headers"); !strings.Contains(out, "default/one, default/two") ||
		strings.Contains(out, "<unknown>") {
		t.Errorf("images ls: %q", out)
	}
	if out := m.Islet("bundle", "node"); !strings.Contains(out, "\nrecipient: age1") || strings.Count(out, "\n- sha256:") == 0 {
		t.Errorf("bundle node: %q", out)
	}
	if out := m.Islet("system", "df"); !strings.Contains(out, "EmptyDirs    4 ") || strings.Count(out, "\n") < 7 {
		t.Errorf("system df: %q", out)
	}
	copyFiles(t, m)
}

// copyFiles copies files from and to a container that has no tar.
func copyFiles(t *testing.T, m *machine.Machine) {
	t.Helper()
	for name, text := range map[string]string{"tree/a": "A", "tree/sub/b": "B"} {
		m.Write(name, text)
	}
	m.Islet("cp", m.Disk+"/tree", "one:/data")
	m.Islet("cp", m.Disk+"/tree/a", "one:/data/c")
	for name, want := range map[string]string{"/data/tree/a": "A", "/data/tree/sub/b": "B", "/data/c": "A"} {
		if out := m.Islet("exec", "one", "--", "/podtool", "cat", name); out != want {
			t.Errorf("%s in the container: %q", name, out)
		}
	}
	m.Islet("cp", "one:/data/tree", m.Disk+"/back")
	m.Islet("cp", "one:/etc/hostname", m.Disk+"/hostname")
	for name, want := range map[string]string{"back/a": "A", "back/sub/b": "B", "hostname": "one\n"} {
		if data, err := os.ReadFile(filepath.Join(m.Disk, name)); string(data) != want {
			t.Errorf("%s from the container: %q, %v", name, data, err)
		}
	}
	// A new file belongs to the container's user, and a read-only mount stays read-only.
	at := fmt.Sprintf("/proc/%s/root/data/c", strings.Fields(m.Islet("top", "processes", "one", "--no-headers"))[2])
	if out := m.Run("stat", "-c", "%u", at); strings.TrimSpace(out) != "1000" {
		t.Errorf("the file belongs to user %s", out)
	}
	if out, code := m.Try("cp", m.Disk+"/tree/a", "one:/fixed/x"); code != 1 || !strings.Contains(out, "read-only file system") {
		t.Errorf("to a read-only mount: code %d, %q", code, out)
	}
	if out, code := m.Try("cp", m.Disk+"/tree/a", "one:/none/x"); code != 4 || !strings.Contains(out, "no such file") {
		t.Errorf("to a missing directory: code %d, %q", code, out)
	}
}
