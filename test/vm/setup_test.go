package vm

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// payload creates the files of a machine.
func payload(t *testing.T) map[string]string {
	t.Helper()
	dist, dir := distribution(t), t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for i := range 4 {
		write(fmt.Sprintf("p%d.yaml", i), []byte(manifest(fmt.Sprint("p", i), "count", "20ms")))
	}
	write("p4.yaml", []byte(claims))
	write("first.yaml", []byte(ordered("first", 0, 7)))
	write("last.yaml", []byte(ordered("last", 2_000_000_000, 4)))
	write("oom.yaml", []byte(manifest("oom", "eat", "200")))
	for _, driver := range []string{"cgroupfs", "systemd"} {
		write(driver+".yaml", fmt.Appendf(nil, kubeletConfig, driver))
	}
	writeBulk(t, dir)
	r := machine.NewReleaser(t)
	r.Release(filepath.Join(dir, "next.tar.gz"), nextVersion, r.BuildVersion(nextVersion))
	write("edge.yaml", fmt.Appendf(nil,
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nconfiguration: {healthyFor: 5s, deadline: 2m}\nupdate: {keys: [%q]}\n",
		r.Public))
	write("sent.yaml", []byte(sentConfiguration))
	return map[string]string{"islet.tar.gz": dist, "podtool.tar": machine.Archive(t), "runc": machine.Runc(t), "podtool": filepath.Join(filepath.Dir(machine.Archive(t)), "podtool"), "files": dir}
}

// distribution returns the path of the archive that machines install. Without one it skips the test, so call it before slow preparations.
func distribution(t *testing.T) string {
	t.Helper()
	dist := os.Getenv("ISLET_DIST")
	if dist == "" {
		t.Skip("no archive to install: set ISLET_DIST (make test-long does)")
	}
	return dist
}

// writeBulk writes the image bulk to a directory, its files, and the checksums of the files.
func writeBulk(t *testing.T, dir string) {
	t.Helper()
	random, sums := rand.NewChaCha8([32]byte{}), ""
	var files []string
	for i := range 64 {
		content := make([]byte, 1<<(i%18)+i)
		random.Read(content)
		name := fmt.Sprint("bulk", i)
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(dir, name))
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name)
	}
	if err := os.WriteFile(filepath.Join(dir, "bulk.sums"), []byte(sums), 0o644); err != nil {
		t.Fatal(err)
	}
	machine.Pack(t, bulk, filepath.Join(dir, "bulk.tar"), files...)
}

// unpack is a command that unpacks islet's archive in /root/islet, from where install.sh installs it.
const unpack = "mkdir -p /root/islet /etc/islet && tar xzf /payload/islet.tar.gz --strip-components=1 -C /root/islet"

// bootUnpacked returns a virtual machine that is on, with islet unpacked but not installed. Its /payload contains the archive, the image of
// the tests, and the given files.
func bootUnpacked(t *testing.T, files map[string]string) *VM {
	t.Helper()
	all := map[string]string{"islet.tar.gz": distribution(t), "podtool.tar": machine.Archive(t)}
	maps.Copy(all, files)
	v := New(t, filepath.Join(machine.Root(t), ".cache"), all)
	v.Diagnose = diagnose
	v.Boot()
	v.Run(unpack)
	return v
}

// node returns a virtual machine with islet installed from its archive.
func node(t *testing.T) *VM {
	t.Helper()
	v := bootUnpacked(t, payload(t))
	v.Run("mkdir -p /var/lib/islet/images /etc/kubernetes/manifests")
	v.Run("cp /payload/podtool.tar /var/lib/islet/images/ && cp /payload/files/p[0-3].yaml /etc/kubernetes/manifests/")
	v.Run("cp /payload/files/cgroupfs.yaml /etc/islet/kubelet.yaml && echo ISLET_ARGS=--config=/etc/islet/kubelet.yaml >/etc/default/islet")
	v.Run("/root/islet/install.sh")
	return v
}

// waitForPods waits until exactly n pods exist and run.
func waitForPods(v shell, n int) {
	v.Await(fmt.Sprintf(`islet pods --no-headers 2>&1 | awk '{print} $2=="1/1" && $3=="Running" {r++} END {exit !(NR==%d && r==%d)}'`, n, n))
}
