package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// podProcesses is a command that prints the PIDs of pods from their cgroups (v2).
const podProcesses = `find /sys/fs/cgroup/kubepods -name cgroup.procs -exec cat {} + 2>/dev/null | sort -n`

// TestPackages checks the installation, upgrade, removal and purge of the Debian package on a machine with its own kernel and cgroup v2.
// It also installs with apt from the directory of make repo. Package system has tests of files, units and configuration, which need no
// virtual machine. ISLET_PACKAGES contains the directory of make packages.
func TestPackages(t *testing.T) {
	deb := debian(t, "ISLET_PACKAGES")
	files := payload(t)
	delete(files, "islet.tar.gz")
	files["islet.deb"], files["repo"] = deb, repository(t, filepath.Dir(deb))
	begin := time.Now()
	step := func(what string) { t.Logf("%4.0fs %s", time.Since(begin).Seconds(), what) }
	v := New(t, filepath.Join(machine.Root(t), ".cache"), files)
	v.Diagnose = diagnose
	v.Boot()
	v.Run("mkdir -p /var/lib/islet/images /etc/kubernetes/manifests && cp /payload/podtool.tar /var/lib/islet/images/ && cp /payload/files/p[0-3].yaml /etc/kubernetes/manifests/")
	step("booted")
	v.Run("rm -f /etc/apt/sources.list && cp /payload/repo/islet.sources /etc/apt/sources.list.d/ && apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y islet")
	v.Run("apt-cache policy islet | grep 'file:/payload/repo/apt stable/main' && dpkg -s islet | grep -q '^Status: install ok installed'")
	step("installed by apt")
	waitForPods(v, 4)
	step("pods run")
	if out := v.Run("islet status"); !strings.Contains(out, "crun 1.21") {
		t.Errorf("the OCI runtime of the package is not used:\n%s", out)
	}

	before := v.Run(podProcesses)
	v.Run("dpkg -i /payload/islet.deb") // an upgrade to the same version
	waitForPods(v, 4)
	if after := v.Run(podProcesses); after != before || before == "" {
		t.Errorf("an upgrade changed the pods' processes from\n%s to\n%s", before, after)
	}
	step("upgraded")
	v.Run("dpkg -r islet")
	if left, _ := v.Try(podProcesses +
		"; ip -o link show islet0 2>/dev/null; grep -E ' /(var/lib|run)/(kubelet|islet|netns)' /proc/self/mountinfo"); strings.TrimSpace(
		left) != "" {
		t.Errorf("resources of pods are left: %s", left)
	}
	v.Run("test -d /var/lib/islet && ! test -e /usr/bin/islet")
	step("removed")
	v.Run("dpkg -i /payload/islet.deb")
	waitForPods(v, 4)
	v.Run("dpkg -P islet && ! test -e /var/lib/islet && ! test -e /run/islet && test -f /etc/kubernetes/manifests/p0.yaml")
	step("installed again, and purged")
}

// debian returns the path of the package islet for this machine in the directory of an environment variable.
func debian(t *testing.T, variable string) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" { // make test-vm and other targets set it
		t.Skipf("%s names no directory of packages", variable)
	}
	found, err := filepath.Glob(filepath.Join(dir, "islet_*_amd64.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v", variable, found, err)
	}
	return found[0]
}

// repository returns the directory of make repo for the amd64 packages, signed by a trial key. The machine has the repository in
// /payload/repo.
func repository(t *testing.T, packages string) string {
	t.Helper()
	dir := t.TempDir()
	for _, pattern := range []string{"*_amd64.deb", "*.x86_64.rpm"} {
		found, err := filepath.Glob(filepath.Join(packages, pattern))
		if err != nil || len(found) != 3 {
			t.Fatal(found, err)
		}
		for _, file := range found {
			data, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	repo := filepath.Join(t.TempDir(), "repo")
	machine.Repository(t, dir, repo, "URL=file:///payload/repo")
	return repo
}
