package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/test/system"
)

// A shell runs commands in a machine: a VM or a system.System.
type shell interface {
	Run(command string) string
	Await(command string) string
}

// prepareNamespaces disables the units of a machine that need a kernel of their own. Call it before VM.Record, if bootStates will boot
// the disk. The virtual machine itself cannot boot any more.
func prepareNamespaces(v *VM) {
	v.Run("rm /etc/systemd/system/*.wants/payload.service && systemctl -q mask systemd-udevd.service systemd-udev-trigger.service " +
		"systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-sysctl.service systemd-modules-load.service " +
		"systemd-remount-fs.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount " +
		"sys-fs-fuse-connections.mount && sync")
}

// bootStates makes the disks that power cuts at the writes of a record leave, spread evenly over all writes. It boots each of them in
// namespaces, as a subtest that runs check. Afterwards neither the database nor the file system may have damage. ISLET_VM_STATES is the
// number of disks. There can be several for one write, which differ by the lost sectors.
func bootStates(t *testing.T, record *Record, check func(t *testing.T, s *system.System, writes int)) {
	states, all := number(t, "ISLET_VM_STATES", 12), record.Writes()+1
	t.Run("cut", func(t *testing.T) {
		for i := range states {
			writes := i * all / states
			t.Run(fmt.Sprintf("%d-%d", writes, i), func(t *testing.T) {
				t.Parallel()
				image := filepath.Join(t.TempDir(), "disk.img")
				lost, err := record.State(image, writes, uint64(i))
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d sectors are lost", lost)
				s := system.NewOf(t, image, system.Systemd, nil)
				s.Boot()
				check(t, s, writes)
				if out := s.Run("ls /var/lib/islet | grep corrupt | cat"); out != "" {
					t.Errorf("the node has moved a damaged database aside:\n%s", out)
				}
				s.PowerOff()
				checkFiles(t, image)
			})
		}
	})
}

// checkFiles checks the file system in an image after a power cut.
func checkFiles(t *testing.T, image string) {
	t.Helper()
	check := exec.Command("e2fsck", "-fp", image) // with -p only damage is an error, and not that the journal must be read
	check.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := check.CombinedOutput()
	if check.ProcessState == nil || check.ProcessState.ExitCode() > 1 {
		t.Errorf("check the file system: %v\n%s", err, out)
	}
}
