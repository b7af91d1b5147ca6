package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// podProcesses prints the processes of pods, by cgroup v2.
const podProcesses = `find /sys/fs/cgroup/kubepods -name cgroup.procs -exec cat {} + 2>/dev/null | sort -n`

// TestPackages installs, upgrades, removes and purges the Debian packages on Debian with
// systemd and cgroup v2. It is run on the packages in ISLET_PACKAGES, which make packages makes.
func TestPackages(t *testing.T) {
	dir := os.Getenv("ISLET_PACKAGES")
	if dir == "" {
		t.Skip("ISLET_PACKAGES names no directory of packages")
	}
	files := payload(t)
	delete(files, "islet.tar.gz")
	for _, name := range []string{"islet", "islet-cni", "islet-kubelet"} {
		found, err := filepath.Glob(filepath.Join(dir, name+"_*_amd64.deb"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v %v", name, found, err)
		}
		files[name+".deb"] = found[0]
	}
	v := New(t, filepath.Join(machine.Root(t), ".cache"), files)
	v.Boot()
	v.Run("mkdir -p /var/lib/islet/images /etc/kubernetes/manifests && cp /payload/podtool.tar /var/lib/islet/images/ && cp /payload/files/p[0-3].yaml /etc/kubernetes/manifests/ && chmod 666 /etc/kubernetes/manifests/*")

	began := time.Now()
	v.Run("dpkg -i /payload/islet.deb")
	installed := time.Since(began)
	ready(v, 4)
	t.Logf("dpkg -i took %.1f s, four pods ran after %.1f s, under emulation", installed.Seconds(), time.Since(began).Seconds())
	v.Run(`[ "$(systemctl is-enabled islet.service)" = enabled ] && systemctl is-active islet.service`)
	v.Run(`[ -z "$(find /etc/kubernetes/manifests -type f ! -perm 600)" ]`)
	if out := v.Run("islet status"); !strings.Contains(out, "crun 1.21") {
		t.Errorf("the OCI runtime that is shipped is not used:\n%s", out)
	}

	before := v.Run(podProcesses)
	v.Run("dpkg -i /payload/islet.deb") // an upgrade, to the same version
	ready(v, 4)
	if after := v.Run(podProcesses); after != before || before == "" {
		t.Errorf("an upgrade changed the pods' processes from\n%s to\n%s", before, after)
	}
	v.Run("echo ISLET_ARGS= >>/etc/default/islet && dpkg -i --force-confdef --force-confold /payload/islet.deb && grep -q ^ISLET_ARGS= /etc/default/islet")

	v.Run("dpkg -L islet | while read -r f; do if [ -f $f ]; then echo $f; fi; done >/root/files && sed -i '$d' /etc/default/islet")
	v.Run("dpkg -r islet")
	if left := v.Run(podProcesses); left != "" {
		t.Errorf("processes that nobody manages are left: %s", left)
	}
	v.Run("test -d /var/lib/islet && test -f /etc/default/islet && ! test -e /usr/bin/islet && ! ip link show islet0")
	v.Run("dpkg -i /payload/islet.deb")
	ready(v, 4)
	v.Run("dpkg -P islet")
	if left := strings.TrimSpace(v.Run("while read -r f; do if [ -e $f ]; then echo $f; fi; done </root/files")); left != "" {
		t.Errorf("purged, and still there: %s", left)
	}
	v.Run("! test -e /var/lib/islet && ! test -e /run/islet && test -f /etc/kubernetes/manifests/p0.yaml")

	v.Run("dpkg -i /payload/islet.deb /payload/islet-cni.deb /payload/islet-kubelet.deb")
	v.Run("systemctl is-active islet-cri.service && ! systemctl is-active islet.service && ! systemctl is-enabled islet.service && test -S /run/islet/cri.sock")
	v.Run(`[ "$(kubelet --version)" = "Kubernetes v1.36.3" ] && [ "$(stat -c %a /etc/crictl.yaml)" = 644 ] && [ "$(readlink /opt/cni/bin/bridge)" = /usr/bin/islet ]`)
	v.Run("dpkg -P islet-kubelet islet-cni islet && ! test -e /usr/bin/kubelet && ! test -e /opt/cni/bin/bridge && ! test -e /etc/crictl.yaml")
}
