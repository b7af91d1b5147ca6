package node

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/islet-edge/islet/test/cluster"
)

// A flashed is a board whose disk has a boot partition and the directory /etc/islet.
type flashed struct {
	*cluster.Node
	t *testing.T
}

// flash returns a board with a boot partition. Its file system is FAT, as on a card, if the kernel and the host support that, or else ext4.
func flash(t *testing.T, c *cluster.Cluster) flashed {
	t.Helper()
	f := flashed{c.Node(t, ""), t}
	image := filepath.Join(f.Disk, "boot.img")
	if err := os.WriteFile(image, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	kinds, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	format := []string{"mkfs.ext4", "-q", image}
	if _, err := exec.LookPath("mkfs.vfat"); err == nil && strings.Contains(string(kinds), "\tvfat\n") {
		format = []string{"mkfs.vfat", image}
	}
	t.Logf("the boot partition is made by %s", format[0])
	if out, err := exec.Command(format[0], format[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.insert()
	return f
}

// insert mounts the boot partition and /etc/islet, as the init of a board does.
func (f flashed) insert() {
	f.t.Helper()
	f.OwnDirs("/etc", "/boot")
	f.Run("sh", "-ec", fmt.Sprintf("mkdir -p %[1]s/etc /etc/islet /boot/firmware; mount --bind %[1]s/etc /etc/islet; mount -o loop,sync %[1]s/boot.img /boot/firmware", f.Disk))
}

// cut cuts the power, and boots the board again.
func (f flashed) cut() {
	f.t.Helper()
	f.PowerOff()
	f.Boot()
	f.insert()
}

// put writes islet.yaml on the boot partition.
func (f flashed) put(text string) {
	f.t.Helper()
	f.Write("islet.yaml", text)
	f.Run("cp", f.Disk+"/islet.yaml", "/boot/firmware/islet.yaml")
}

// service sets the board up and starts the agent, as the service does. The agent has no flags of a cluster.
func (f flashed) service() {
	f.t.Helper()
	if out, code := f.Try("setup", "--state-dir="+f.Disk+"/state"); code != 0 {
		f.t.Fatalf("islet setup: %d: %s", code, out)
	}
	f.StartAgent(f.flags()...)
}

func (f flashed) flags() []string {
	return []string{"--cert-dir=" + f.Disk + "/pki", "--node-ip=" + f.Addr, "--config=/etc/islet/kubelet.yaml", "--edge-config=/etc/islet/edge.yaml"}
}

// console makes a terminal the console of the machine. The function read returns what was written to it since the last call.
func (f flashed) console() (read func() string) {
	f.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { master.Close() })
	var unlock, number uint32
	for request, value := range map[uintptr]*uint32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			f.t.Fatal(errno)
		}
	}
	f.Run("mount", "--bind", fmt.Sprintf("/dev/pts/%d", number), "/dev/console")
	return func() string {
		buffer := make([]byte, 8192)
		n, err := syscall.Read(int(master.Fd()), buffer)
		if err != nil && err != syscall.EAGAIN {
			f.t.Fatal(err)
		}
		return string(buffer[:max(n, 0)])
	}
}

// TestZeroTouch checks that a flashed board joins by the islet.yaml of its boot partition. A mistake is printed on the console. Neither
// kill -9 nor a power cut leaves a half of the setup. The token is removed from the boot partition, and no later start needs it.
func TestZeroTouch(t *testing.T) {
	t.Parallel()
	c := start(t)
	f := flash(t, c)
	said := f.console()
	data, err := os.ReadFile(filepath.Join(f.Disk, "kubelet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.Disk, "kubelet.yaml")); err != nil {
		t.Fatal(err)
	}
	settings, _, _ := strings.Cut(string(data), "authentication:") // without the CA, which the setup adds
	_, more, _ := strings.Cut(string(data), "authorization:")
	f.Write("k.yaml", settings+"authorization:"+more)
	f.Write("e.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n", f.Disk))
	f.Run("cp", f.Disk+"/k.yaml", f.Disk+"/e.yaml", "/boot/firmware/")
	text := func(authority string) string {
		return fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: BoardSetup\nname: %s\ncluster:\n  server: https://%s:6443\n  %s\n  token: %s # once\n"+
			"kubeletConfiguration: k.yaml\nedgeConfiguration: e.yaml\n", f.Name, "10.97.0.1", authority, c.Token())
	}
	block, _ := pem.Decode([]byte(c.Authority()))
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	good := text(fmt.Sprintf("caHash: sha256:%x", sha256.Sum256(ca.RawSubjectPublicKeyInfo)))

	// Without the token: the test later searches the whole image for it, also old blocks.
	f.put(strings.Replace(good, "token: "+c.Token(), "tokn: without", 1))
	if out, code := f.Try("setup", "--state-dir="+f.Disk+"/state"); code != 1 || !strings.Contains(out, "/boot/firmware/islet.yaml:7: cluster.tokn: unknown field") {
		t.Errorf("islet setup: %d: %s", code, out)
	}
	if line := said(); !strings.HasPrefix(line, "islet: setup: /boot/firmware/islet.yaml is not in use: /boot/firmware/islet.yaml:7: cluster.tokn") {
		t.Errorf("the console shows %q", line)
	}
	f.put(good)
	for i := range 12 { // kill -9 at several moments; 0 would mean no timeout. The unit tests kill the command at each step
		f.Command("timeout", "-s", "KILL", fmt.Sprintf("0.0%02d", 4*(i+1)), f.Binary(), "setup", "--state-dir="+f.Disk+"/state").Run()
	}
	f.cut()
	said = f.console()
	f.service()
	c.AwaitNode(t, f.Name, "to be ready", cluster.NodeReady)
	removed := strings.ReplaceAll(good, c.Token(), strings.Repeat("_", len(c.Token())))
	f.Await("the token to be removed", func() bool { return f.Run("cat", "/boot/firmware/islet.yaml") == removed })
	f.Await("the console to say that the board has joined", func() bool {
		return strings.Contains(said(), f.Name+" has joined https://10.97.0.1:6443")
	})
	f.cut() // the boot partition is synced
	if image, err := os.ReadFile(filepath.Join(f.Disk, "boot.img")); err != nil || bytes.Contains(image, []byte(c.Token())) {
		t.Errorf("the token is still on the boot partition: %v", err)
	}
	if out := f.Islet("setup", "--state-dir="+f.Disk+"/state"); out != "" {
		t.Errorf("islet setup applied the file again: %s", out)
	}
	f.Run("rm", "/etc/islet/bootstrap.kubeconfig")
	f.put(removed + "name: another\n")
	if out, code := f.Try("setup", "--state-dir="+f.Disk+"/state"); code != 1 {
		t.Errorf("islet setup: %d: %s", code, out)
	}
	f.StartAgent(f.flags()...)
	f.Await("islet status to name the mistake", func() bool {
		out, _ := f.Try("status")
		return strings.Contains(strings.Join(strings.Fields(out), " "), "islet.yaml is not in use: /boot/firmware/islet.yaml:10: name: duplicate field")
	})
	f.Stop()
	f.put(removed)
	f.service()
	c.AwaitNode(t, f.Name, "to be ready again", cluster.NodeReady)

	// kubectl logs and exec use the CA of the cluster, which the setup has added.
	f.Write("manifests/static.yaml", pod("default", "static", "", "", "sleep"))
	c.AwaitReady(t, "default", "static-"+f.Name)
	out, err := c.TryKubectl("", "exec", "static-"+f.Name, "--", "/podtool", "cat", "/etc/hostname")
	if err != nil || !strings.HasPrefix(out, "static-") {
		t.Errorf("kubectl exec: %v: %s", err, out)
	}
}
