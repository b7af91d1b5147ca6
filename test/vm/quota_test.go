package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestProjectQuotas runs the tests of package quota on a kernel with project quotas.
func TestProjectQuotas(t *testing.T) {
	if os.Getenv("ISLET_DIST") == "" {
		t.Skip("it needs the virtual machine: set ISLET_DIST (make test-long does)")
	}
	program := filepath.Join(t.TempDir(), "quota.test")
	build := exec.Command("go", "test", "-c", "-o", program, "./internal/quota")
	build.Dir, build.Env = machine.Root(t), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	v := New(t, filepath.Join(machine.Root(t), ".cache"), map[string]string{"quota.test": program})
	v.Boot()
	v.Run("modprobe loop; modprobe quota_v2")
	out := v.Run("ISLET_QUOTA_MUST=1 /payload/quota.test -test.v 2>&1 || true")
	t.Log(out)
	for _, name := range []string{"TestLimit/ext4", "TestNotEmpty", "TestUnsupported", "TestLinks"} {
		if !strings.Contains(out, "--- PASS: "+name) {
			t.Errorf("%s did not pass", name)
		}
	}
}
