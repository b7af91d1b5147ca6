package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// A bound contains the CPU time and the duration that the OCI runtime alone needs for the same containers.
type bound struct{ cpu, wall time.Duration }

// bareRuntime creates and starts n containers of the test image one after the other, without pods. It uses the OCI runtime that islet
// would choose.
func bareRuntime(t *testing.T, n int) bound {
	t.Helper()
	m := machine.New(t, "bare")
	m.Boot()
	defer m.PowerOff()
	root := filepath.Join(m.Disk, "rootfs")
	for _, d := range []string{"proc", "dev", "sys", "etc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := os.ReadFile(filepath.Join(filepath.Dir(machine.Archive(t)), "podtool"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "podtool"), tool, 0o755); err != nil {
		t.Fatal(err)
	}
	runtime := chosenRuntime(t, m, root)
	for i := range n {
		bundle(t, m, root, fmt.Sprint("b", i))
	}
	cpu, wall := m.CPU(), time.Now()
	// One shell starts all containers. A separate process for each container would add its own CPU time to that of the runtime. The output
	// is not a pipe, because the containers would keep the pipe open and Run would wait for them.
	all := `for i in $(seq 0 $(($3 - 1))); do "$1" create --bundle "$2/b$i" "b$i" && "$1" start "b$i" || exit; done`
	if err := m.MeasuredCommand("sh", "-c", all, "sh", runtime, m.Disk, fmt.Sprint(n)).Run(); err != nil {
		t.Fatalf("run containers with %s alone: %v", runtime, err)
	}
	return bound{cpu: m.CPU() - cpu, wall: time.Since(wall)}
}

// chosenRuntime returns the OCI runtime that the binary under test chooses. The first choice is the crun that is installed with the binary.
// The second choice is the crun of the host, and the third is runc. A runtime that does not work is skipped.
func chosenRuntime(t *testing.T, m *machine.Machine, root string) string {
	bundle(t, m, root, "probe")
	shipped := filepath.Join(filepath.Dir(m.Binary()), "../lib/islet/crun")
	for _, name := range []string{shipped, "crun", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		if m.Command(name, "create", "--bundle", filepath.Join(m.Disk, "probe"), "probe").Run() == nil {
			m.Run(name, "delete", "--force", "probe")
			return name
		}
	}
	t.Fatal("neither the shipped OCI runtime nor crun nor runc runs a container here")
	return ""
}

func bundle(t *testing.T, m *machine.Machine, root, id string) {
	t.Helper()
	dir := filepath.Join(m.Disk, id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process":    map[string]any{"args": []string{"/podtool", "sleep"}, "cwd": "/", "env": []string{"PATH=/"}},
		"root":       map[string]any{"path": root, "readonly": true},
		"mounts": []map[string]any{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
			{"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": []string{"nosuid", "noexec", "nodev", "mode=1777"}},
		},
		"linux": map[string]any{
			"cgroupsPath": m.Cgroup + "/" + id,
			"namespaces":  []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}},
		},
	}
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}
