package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestArchitectures installs the Debian package on emulated boards with other processors. It checks that ten pods run with enforced
// limits. The pods must run again after a reboot.
func TestArchitectures(t *testing.T) {
	dir := os.Getenv("ISLET_PACKAGES")
	wanted := strings.FieldsFunc(os.Getenv("ISLET_VM_ARCHITECTURES"), func(r rune) bool { return r == ',' || r == ' ' })
	if dir == "" || len(wanted) == 0 {
		t.Skip("it takes long: set ISLET_VM_ARCHITECTURES (arm64,armhf) and ISLET_PACKAGES (make test-architectures does)")
	}
	known := map[string]Arch{ARM64.Debian: ARM64, ARMHF.Debian: ARMHF}
	for _, name := range wanted {
		arch, ok := known[name]
		if !ok {
			t.Errorf("there is no machine of architecture %q", name)
			continue
		}
		t.Run(name, func(t *testing.T) { architecture(t, arch, dir) })
	}
}

func architecture(t *testing.T, arch Arch, dir string) {
	found, err := filepath.Glob(filepath.Join(dir, "islet_*_"+arch.Debian+".deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages of islet for %s: %v %v", arch.Debian, found, err)
	}
	pods := t.TempDir()
	const many = 10
	for i := range many {
		if err := os.WriteFile(filepath.Join(pods, fmt.Sprintf("p%d.yaml", i)),
			[]byte(sized(fmt.Sprint("p", i), "limits: {memory: 32Mi, cpu: 100m}", "count", "1s")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v := NewOf(t, arch, filepath.Join(machine.Root(t), ".cache"), map[string]string{
		"islet.deb": found[0], "podtool.tar": machine.ArchiveFor(t, arch.Go), "pods": pods,
	})
	v.Diagnose = diagnose
	v.Boot()
	v.Run("mkdir -p /var/lib/islet/images /etc/kubernetes/manifests && cp /payload/podtool.tar /var/lib/islet/images/ && cp /payload/pods/* /etc/kubernetes/manifests/")
	v.Run("dpkg -i /payload/islet.deb")
	waitForPods(v, many)
	if out := v.Run("islet status"); !strings.Contains(out, "crun 1.21") {
		t.Errorf("the OCI runtime of the package is not used:\n%s", out)
	}
	for file, want := range map[string]string{"memory.max": "33554432", "cpu.max": "10000 100000"} {
		if got := strings.TrimSpace(v.Run(`cat /sys/fs/cgroup$(sed 's/^0:://' /proc/$(pgrep -f '^/podtool count' | head -1)/cgroup)/` +
			file)); got != want {
			t.Errorf("%s is %q, not %q", file, got, want)
		}
	}
	if out, code := v.Try("islet exec p3-edge -- /podtool eat 64"); code == 0 {
		t.Errorf("the process exceeded its memory limit: %s", out)
	}
	v.Await(`islet pods p3-edge -o json | grep '"reason": "OOMKilled"'`)
	waitForPods(v, many)
	v.Await("islet logs p0-edge | grep -q .")
	waitForRest(v)

	v.Reboot()
	waitForPods(v, many)
	v.Await("islet logs p0-edge | grep -q .")
	waitForRest(v)
}
