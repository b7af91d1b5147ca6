package system

import (
	"fmt"
	"strings"
	"testing"
)

// deb returns a command that builds /root/NAME.deb, a package with the given fields and no files.
func deb(name string, fields ...string) string {
	return fmt.Sprintf(`mkdir -p /root/%[1]s/DEBIAN && printf '%%s\n' 'Package: %[1]s' 'Version: 1.36.1' 'Architecture: all' 'Maintainer: nobody <nobody@example.com>' 'Description: of a test' '%[2]s' >/root/%[1]s/DEBIAN/control && dpkg-deb -b /root/%[1]s /root/%[1]s.deb`,
		name, strings.Join(fields, "' '"))
}

// ownDisk mounts a directory of another disk at /var/lib/islet. hostData mounts another directory of that disk below /var/lib/islet. The
// mount of hostData is like a volume of an administrator that islet's cleanup does not know.
const (
	ownDisk  = "mkdir -p /var/lib/islet && mount -t tmpfs disk /mnt && mkdir /mnt/islet /mnt/data && mount --bind /mnt/islet /var/lib/islet"
	hostData = "mkdir -p /var/lib/islet/mine && echo precious >/mnt/data/file && mount --bind /mnt/data /var/lib/islet/mine"
)

// TestFormerSettings checks that the packages keep existing configuration files with the same names as their own. dpkg must ask no
// question. A purge must not delete these files.
func TestFormerSettings(t *testing.T) {
	s := packaged(t, Systemd, "deb", 0)
	s.Run("echo 'runtime-endpoint: unix:///run/containerd/containerd.sock' >/etc/crictl.yaml && echo 'KUBELET_EXTRA_ARGS=--v=3' >/etc/default/kubelet && echo '# mine' >/etc/default/islet")
	// /var/lib/islet is on a separate disk.
	s.Run(ownDisk)
	s.Run("dpkg -i /payload/islet.deb /payload/islet-cni.deb /payload/islet-kubelet.deb")
	const kept = "grep -qx 'KUBELET_EXTRA_ARGS=--v=3' /etc/default/kubelet && grep -q containerd.sock /etc/crictl.yaml"
	s.Run(kept + " && grep -q mine /etc/default/islet && systemctl is-active islet-cri.service")
	s.Run("dpkg -i /payload/islet-next.deb /payload/islet-cni-next.deb /payload/islet-kubelet-next.deb")
	s.Run(kept + " && grep -q mine /etc/default/islet")
	s.Run(hostData)
	says(s, 0, "dpkg -P islet-kubelet islet-cni islet", "/var/lib/islet stays")
	s.Run("grep -q precious /mnt/data/file && umount /var/lib/islet/mine && dpkg -i /payload/islet.deb")
	s.Run("dpkg -P islet && " + kept +
		" && ! test -e /etc/default/islet && mountpoint /var/lib/islet && ! find /var/lib/islet -mindepth 1 | grep .")
	// A configuration file that the administrator deleted is not created by an upgrade.
	s.Run("dpkg -i /payload/islet.deb && rm /etc/default/islet && dpkg -i /payload/islet-next.deb && ! test -e /etc/default/islet && dpkg -P islet")
}

// TestFormerPackages checks that islet's packages satisfy the dependencies of kubeadm's packages on the kubelet and the CNI plugins, and
// that the drop-in file of kubeadm's package is not in the way. The package kubelet must conflict with islet's packages.
func TestFormerPackages(t *testing.T) {
	s := packaged(t, Systemd, "deb", 0)
	s.Run("mkdir -p /root/cluster-tools/usr/lib/systemd/system/kubelet.service.d && " +
		`printf '[Service]\nExecStart=\nExecStart=/bin/false\n' >/root/cluster-tools/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf`)
	s.Run(deb("cluster-tools", "Depends: kubelet (>= 1.35~), kubernetes-cni (>= 1.2.0)") + " && " + deb("kubelet"))
	says(s, 1, "dpkg -i /root/cluster-tools.deb", "kubelet")
	s.Run("dpkg -P cluster-tools")
	s.Run("dpkg -i /payload/islet.deb /payload/islet-cni.deb /payload/islet-kubelet.deb && dpkg -i /root/cluster-tools.deb")
	s.Run("dpkg -s cluster-tools | grep -qx 'Status: install ok installed'")
	s.Run("systemctl daemon-reload && systemctl show -p ExecStart kubelet.service | grep -q 'argv.*/usr/bin/kubelet .KUBELET' || " +
		"{ systemctl cat kubelet.service; exit 1; }")
	says(s, 1, "dpkg -i /root/kubelet.deb", "conflict")
	says(s, 1, "dpkg -r islet-kubelet", "cluster-tools depends on kubelet")
	s.Run("systemctl is-active islet-cri.service && systemctl is-enabled kubelet.service")
}

// TestFormerNode checks that a package does not start islet while a kubelet or k3s runs, also after an upgrade. When the kubelet or k3s
// has ended, the package must start islet. A failed daemon-reload must not change the size of /run.
func TestFormerNode(t *testing.T) {
	for name, init := range map[string][]string{"systemd": Systemd, "OpenRC": OpenRC} {
		t.Run(name, func(t *testing.T) {
			s := packaged(t, init, "deb", 1)
			starts := map[string]string{"systemd": "systemctl is-enabled islet.service", "OpenRC": "rc-update show default | grep -q islet"}[name]
			s.Run("cp /bin/sleep /root/kubelet && { setsid /root/kubelet 600 >/dev/null 2>&1 & } && until pgrep -x kubelet; do :; done")
			s.Run(`mkdir /root/bin && printf '#!/bin/sh\nif [ "$1" = daemon-reload ] && [ ! -e /root/failed ]; then : >/root/failed; exit 1; fi\nexec /usr/bin/systemctl "$@"\n' >/root/bin/systemctl && chmod 755 /root/bin/systemctl`)
			const room = "df -Pk /run | awk 'NR == 2 { print $2 }'"
			before := s.Run(room)
			says(s, 0, "PATH=/root/bin:$PATH dpkg -i /payload/islet.deb", "kubelet (process ", "is not started")
			if now := s.Run(room); now != before {
				t.Errorf("the size of /run was %s KiB and is %s", before, now)
			}
			s.Run("! pgrep -x islet && ! " + starts)
			s.Run("dpkg -i /payload/islet-next.deb && ! pgrep -x islet && ! " + starts)
			s.Run("dpkg -r islet && pkill -x kubelet && while pgrep -x kubelet; do :; done && dpkg -i /payload/islet.deb && " + starts)
			waitForPods(s, 1)
		})
	}
}

// TestKubeletOpenRC checks that the package islet-kubelet stops the agent that OpenRC has started, because both use the same directories.
// It must print that OpenRC has no service for the kubelet.
func TestKubeletOpenRC(t *testing.T) {
	s := packaged(t, OpenRC, "deb", 1)
	s.Run("dpkg -i /payload/islet.deb")
	waitForPods(s, 1)
	before := s.Run(counting)
	says(s, 0, "dpkg -i /payload/islet-cni.deb /payload/islet-kubelet.deb", "OpenRC, which is init here")
	s.Run("! pgrep -x islet && ! rc-update show default | grep -q islet")
	s.Run("dpkg -i /payload/islet-next.deb && ! pgrep -x islet && ! rc-update show default | grep -q islet")
	if after := s.Run(counting); after != before {
		t.Errorf("the pods' processes were\n%s and are\n%s", before, after)
	}
	s.Run("dpkg -P islet-kubelet islet-cni islet && ! pgrep -x podtool")
}
