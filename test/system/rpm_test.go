package system

import (
	"strings"
	"testing"
)

// TestRPM checks the installation, upgrade and removal of the rpm packages under systemd without Debian's helper programs. It uses
// --nodeps, because the rpm database does not contain the required shell.
func TestRPM(t *testing.T) {
	s := packaged(t, Systemd, "rpm", 4)
	s.Run("for f in deb-systemd-helper deb-systemd-invoke; do mv /usr/bin/$f /usr/bin/$f.away; done && rpm --initdb")
	t.Log(upgraded(s, 4, "rpm -i --nodeps /payload/islet.rpm", "rpm -U --nodeps /payload/islet-next.rpm"))
	s.Run(`[ "$(systemctl is-enabled islet.service)" = enabled ] && [ -z "$(find /etc/kubernetes/manifests -type f ! -perm 600)" ]`)
	if out := s.Run("rpm -V --nodeps islet"); out != "" {
		t.Errorf("the installed files differ from the package:\n%s", out)
	}
	if out := s.Run("{ rpm -qlv islet && rpm -qlvp /payload/islet-kubelet.rpm; } | awk '$3 != \"root\" || $4 != \"root\" || $1 ~ /^-....w|^-.......w/ || $NF ~ /[.]service$/ && $1 != \"-rw-------\"'; rpm -qc islet"); strings.TrimSpace(out) != "/etc/default/islet" {
		t.Errorf("owners and modes, and settings: %s", out)
	}
	s.Run("echo '# mine' >>/etc/default/islet")
	// An upgrade does not enable a service that an administrator has disabled.
	s.Run(`systemctl disable islet.service && rpm -U --nodeps --oldpackage /payload/islet.rpm && grep -q mine /etc/default/islet &&
		[ "$(systemctl is-enabled islet.service)" = disabled ]`)
	waitForPods(s, 4)
	s.Run("rpm -ql islet >/root/files && rpm -e islet")
	if left, _ := s.Try(counting); left != "" {
		t.Errorf("processes of pods are left: %s", left)
	}
	s.Run("test -d /var/lib/islet && test -f /etc/default/islet.rpmsave && ! test -e /usr/bin/islet && ! ip link show islet0 && ! test -e /etc/systemd/system/multi-user.target.wants/islet.service")
	if left := strings.TrimSpace(s.Run("while read -r f; do if [ -f $f ]; then echo $f; fi; done </root/files")); left != "" {
		t.Errorf("files are left after the removal: %s", left)
	}
	s.Run("rpm -i --nodeps /payload/islet.rpm /payload/islet-cni.rpm /payload/islet-kubelet.rpm && systemctl is-active islet-cri.service && ! systemctl is-active islet.service && test -S /run/islet/cri.sock")
	s.Run("rpm -e islet-kubelet islet-cni islet && ! test -e /usr/bin/kubelet && ! pgrep -x islet && ! test -e /opt/cni/bin/bridge")
}
