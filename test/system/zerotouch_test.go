package system

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestZeroTouch checks that the service applies the islet.yaml of a boot partition before its agent starts, that a mistake does not keep
// the agent from its start, and that install.sh --config does the same with another file.
func TestZeroTouch(t *testing.T) {
	dist := distribution(t)
	for _, c := range []struct {
		name, restart string
		init          []string
	}{
		{"systemd", "systemctl restart islet", Systemd}, {"OpenRC", "rc-service islet restart", OpenRC},
	} {
		t.Run(c.name, func(t *testing.T) {
			installer := filepath.Join(machine.Root(t), "packaging/install.sh")
			s := New(t, c.init, map[string]string{"islet.tar.gz": dist, "install.sh": installer})
			s.Boot()
			install := "cp /payload/islet.tar.gz /root/islet-1.tar.gz; sh /payload/install.sh --config /root/my.yaml /root/islet-1.tar.gz"
			named := func(name, more string) string {
				return "printf 'apiVersion: islet.dev/v1alpha1\nkind: BoardSetup\nname: " + name + "\n" + more + "' >"
			}
			s.Run(named("kiosk-1", "nmae: x\n") + "/root/my.yaml")
			says(s, 1, install, "/root/my.yaml:4: nmae: unknown field", "was not started")
			s.Run("! pgrep -x islet && ! test -e /etc/islet/flags")
			s.Run(named("kiosk-1", "") + "/root/my.yaml")
			says(s, 0, install, "/root/my.yaml is in use")
			s.Await("/usr/local/bin/islet status | grep -q 'kiosk-1'")

			s.Run("mkdir -p /boot/firmware")
			s.Run(named("kiosk-2", "network: {podCIDR: 10.9.0.0/24}\n") + "/boot/firmware/islet.yaml && " + c.restart)
			s.Await("/usr/local/bin/islet status | grep -q 'kiosk-2'")
			s.Run("grep -q 10.9.0.0/24 /etc/islet/kubelet.yaml && test $(stat -c %a /etc/islet/kubelet.yaml) = 600")
			s.Run(named("Kiosk_3", "") + "/boot/firmware/islet.yaml && " + c.restart)
			s.Await("/usr/local/bin/islet status | grep -q 'kiosk-2'")
			out, _ := s.Try("/usr/local/bin/islet status")
			if !strings.Contains(strings.Join(strings.Fields(out), " "), "/boot/firmware/islet.yaml is not in use") {
				t.Errorf("islet status does not name the mistake:\n%s", out)
			}
			s.Run("rm /boot/firmware/islet.yaml && sh /payload/install.sh uninstall --purge /root/islet-1.tar.gz && ! test -e /etc/islet/flags")
		})
	}
}
