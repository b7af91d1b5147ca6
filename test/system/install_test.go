package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// distribution returns the path of the archive of make dist. Without one it skips the test.
func distribution(t *testing.T) string {
	t.Helper()
	dist := os.Getenv("ISLET_DIST")
	if dist == "" {
		t.Skip("no archive to install: make test-system")
	}
	return dist
}

// archived returns a system with the packages and the unpacked archive of make dist in /root/islet.
func archived(t *testing.T, init []string) *System {
	t.Helper()
	dist := distribution(t)
	debs, err := filepath.Glob(filepath.Join(packages(t, false), "islet_*_amd64.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatal(debs, err)
	}
	s := New(t, init, map[string]string{"islet.tar.gz": dist, "islet.deb": debs[0], "install.sh": filepath.Join(machine.Root(t), "packaging/install.sh")})
	s.Boot()
	s.Run("mkdir -p /root/islet && tar xzf /payload/islet.tar.gz --strip-components=1 -C /root/islet")
	return s
}

// says runs a command. It checks the exit code, and that the output contains each of the texts.
func says(s *System, code int, command string, texts ...string) string {
	s.t.Helper()
	out, got := s.Try(command)
	if got != code {
		s.t.Fatalf("%s: exit code %d, want %d\n%s", command, got, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			s.t.Errorf("%s does not print %q:\n%s", command, text, out)
		}
	}
	return out
}

// nothing is a command that succeeds if no file of install.sh exists.
const nothing = "! find /usr/local /etc/systemd/system /opt -name '*islet*' | grep . && ! test -e /usr/local/bin/kubelet"

// TestInstallLooks checks that install.sh reports an impossible installation before it changes the system. It must print a warning for an
// unsuitable installation.
func TestInstallLooks(t *testing.T) {
	s := archived(t, Systemd)
	refused := func(command string, texts ...string) {
		t.Helper()
		says(s, 1, command, texts...)
		s.Run(nothing)
	}
	refused("mv /root/islet/files /root/ && /root/islet/install.sh", "files is missing beside this script")
	says(s, 1, "/root/islet/install.sh uninstall", "files is missing beside this script")
	s.Run("mv /root/files /root/islet/ && mount --bind /root/islet /root/islet && mount -o remount,bind,noexec /root/islet")
	refused("sh /root/islet/install.sh", "noexec")
	s.Run("umount /root/islet && mount -t tmpfs -o size=20m disk /usr/local")
	refused("/root/islet/install.sh", "MiB are free for /usr/local/bin")
	s.Run("umount /usr/local && mkdir /root/lib && mount --bind /var/lib /root/lib && mount -t tmpfs -o size=100m disk /var/lib")
	refused("/root/islet/install.sh", "are free in /var/lib: islet and a first image need 200")
	s.Run("umount /var/lib /root/lib")

	for _, name := range []string{"kubelet", "k3s-server"} {
		s.Run("cp /bin/sleep /root/" + name + " && { setsid /root/" + name + " 600 >/dev/null 2>&1 & } && until pgrep -x " + name +
			"; do :; done")
		refused("/root/islet/install.sh", name+" (process ", "--no-start")
		refused("/root/islet/install.sh --no-start --alone", name+" (process ")
		s.Run("pkill -x " + name + " && while pgrep -x " + name + "; do :; done")
	}
	// A kubelet in another PID namespace must be ignored.
	s.Run("{ setsid unshare --pid --fork /root/kubelet 600 >/dev/null 2>&1 & } && until pgrep -x kubelet; do :; done")

	s.Run(`mkdir -p /root/proc /root/bin && printf 'Filename\nfile\n' >/root/proc/swaps && printf 'memory 1 1 1\n' >/root/proc/cgroups
		printf '#!/bin/sh\necho 1970\n' >/root/bin/date && chmod 755 /root/bin/date`)
	says(s, 0, "ISLET_PROC=/root/proc PATH=/root/bin:$PATH /root/islet/install.sh --no-start", "this machine has swap", "the clock says 1970")
	s.Run("[ -x /usr/local/bin/islet ] && ! systemctl is-active islet.service && ! systemctl is-enabled islet.service")
	// An upgrade needs no free space for images. A kernel without swap has no /proc/swaps.
	s.Run("rm /root/proc/swaps && mount -t tmpfs -o size=100m disk /var/lib")
	if out := says(s, 0, "ISLET_PROC=/root/proc /root/islet/install.sh --no-start",
		"MiB are free in /var/lib: images need room"); strings.Contains(out, "swap") {
		t.Error(out)
	}
	s.Run("umount /var/lib && pkill -x kubelet")
}

// TestInstallCommandLine checks a board whose kernel has no memory cgroup. install.sh must print the necessary change of the kernel's
// command line, and make this change with --cmdline. After this change, install.sh must not wait for the first pod, because pods start only
// after a reboot.
func TestInstallCommandLine(t *testing.T) {
	s := archived(t, Systemd)
	const line = "console=tty1 root=/dev/mmcblk0p2 rootwait"
	s.Run("mkdir -p /root/proc /root/boot/firmware && printf 'memory 1 1 0\n' >/root/proc/cgroups && echo '" + line +
		"  ' >/root/boot/firmware/cmdline.txt")
	const install = "ISLET_CGROUP=/nowhere ISLET_PROC=/root/proc ISLET_BOOT=/root/boot /root/islet/install.sh "
	says(s, 0, install+"--no-start", "counts no memory",
		"append cgroup_enable=memory cgroup_memory=1 to the one line of /root/boot/firmware/cmdline.txt", "./install.sh --cmdline")
	// On a terminal, install.sh asks before it changes the command line.
	says(s, 0, "echo n | script -qec '"+install+"--no-start' /dev/null",
		"append \"cgroup_enable=memory cgroup_memory=1\" to /root/boot/firmware/cmdline.txt? [y/N]")
	s.Run("! test -e /root/boot/firmware/cmdline.txt.before-islet && [ \"$(cat /root/boot/firmware/cmdline.txt)\" = '" + line + "  ' ]")
	// A power failure must leave a valid command line on the card, and the former command line in a second file.
	s.Run("mkdir /root/bin && printf '#!/bin/sh\ncd /root/boot/firmware && grep -c cgroup_enable * >>/root/synced\n' >/root/bin/sync && chmod 755 /root/bin/sync")
	says(s, 0, "PATH=/root/bin:$PATH "+install+"--cmdline --demo", "Reboot after this", "starts after the reboot", "http://localhost:8080/")
	if got := s.Run("cat /root/boot/firmware/cmdline.txt /root/boot/firmware/cmdline.txt.before-islet"); got != line+
		" cgroup_enable=memory cgroup_memory=1\n"+line+"  \n" {
		t.Errorf("the command line and that of before are\n%s", got)
	}
	if got := s.Run("head -n 5 /root/synced"); got != "cmdline.txt:0\ncmdline.txt.before-islet:0\ncmdline.txt.new:1\ncmdline.txt:1\ncmdline.txt.before-islet:0\n" {
		t.Errorf("the files at the first two syncs are:\n%s", got)
	}
	s.Run("[ $(stat -c %a /etc/kubernetes/manifests/islet-demo-web.yaml) = 600 ] && test -f /var/lib/islet/images/islet-demo.tar")
	says(s, 0, install+"--cmdline --no-start", "reboot, /root/boot/firmware/cmdline.txt has cgroup_enable=memory")
	if n := strings.Count(s.Run("cat /root/boot/firmware/cmdline.txt"), "cgroup_enable"); n != 1 {
		t.Errorf("the command line contains the setting %d times", n)
	}
}

// TestInstallDemo checks the demo installation from the archive until a pod serves a page, and an uninstallation without leftovers.
func TestInstallDemo(t *testing.T) {
	s := archived(t, Systemd)
	// /var/lib/islet is on a separate disk.
	s.Run(ownDisk)
	// The first systemctl daemon-reload fails.
	s.Run(`mkdir /root/bin && printf '#!/bin/sh\nif [ "$1" = daemon-reload ] && [ ! -e /root/failed ]; then : >/root/failed; exit 1; fi\nexec /usr/bin/systemctl "$@"\n' >/root/bin/systemctl && chmod 755 /root/bin/systemctl`)
	room := s.Run("df -Pk /run | awk 'NR == 2 { print $2 }'")
	says(s, 0, "PATH=/root/bin:$PATH /root/islet/install.sh --demo", "the first pod serves a page: http://localhost:8080/",
		"rm /etc/kubernetes/manifests/islet-demo-web.yaml")
	if now := s.Run("test -e /root/failed && df -Pk /run | awk 'NR == 2 { print $2 }'"); now != room {
		t.Errorf("the size of /run was %s KiB and is %s", room, now)
	}
	s.Run(`bash -c 'exec 3<>/dev/tcp/localhost/8080 && printf "GET / HTTP/1.0\r\n\r\n" >&3 && grep -q "^HTTP/1.0 200" <&3'`)
	s.Run("systemctl is-active islet.service && systemctl is-enabled islet.service")
	// This is a mount of the host that islet's cleanup does not know.
	s.Run(hostData)
	says(s, 0, "/root/islet/install.sh uninstall --purge", "/var/lib/islet stays", "removed")
	s.Run("grep -q precious /mnt/data/file && umount /var/lib/islet/mine && /root/islet/install.sh")
	// systemd accepts this file, which a shell reads in another way.
	s.Run("echo 'ISLET_ARGS=--v=2 --run-dir=/run/other' >/etc/default/islet && systemctl restart islet && test -e /run/other")
	says(s, 0, "/root/islet/install.sh uninstall --purge", "removed")
	s.Run(nothing + " && ! test -e /run/other && ! find /etc/kubernetes /var/lib/islet -mindepth 1 | grep . && ! test -e /run/islet && ! pgrep -x islet && mountpoint /var/lib/islet")
}

// TestInstallKubeadm installs the archive again, with any options, on a node for kubeadm. The node must remain a node for kubeadm. A
// standalone installation or a package must be uninstalled first.
func TestInstallKubeadm(t *testing.T) {
	s := archived(t, Systemd)
	s.Run("/root/islet/install.sh")
	s.Run("systemctl is-active islet.service")
	const node = "systemctl is-active islet-cri.service && systemctl is-enabled kubelet.service && ! systemctl is-active islet.service && ! test -e /etc/systemd/system/islet.service && [ $(readlink /usr/local/bin/kubelet) = /usr/local/bin/islet ]"
	says(s, 0, "/root/islet/install.sh --kubeadm", "now: kubeadm join")
	s.Run(node)
	says(s, 0, "/root/islet/install.sh", "stays one", "now: kubeadm join")
	s.Run(node)
	s.Run("/root/islet/install.sh uninstall --purge && " + nothing)

	s.Run("/root/islet/install.sh --no-start")
	says(s, 0, "dpkg -i /payload/islet.deb", "/usr/local/bin/islet, of an archive, hides",
		"/etc/systemd/system/islet.service, of an archive, hides")
	says(s, 1, "/root/islet/install.sh", "installed as a package")
	s.Run("/root/islet/install.sh uninstall")
	if out := s.Run("dpkg -i /payload/islet.deb"); strings.Contains(out, "hides") {
		t.Error(out)
	}
}

// TestInstallOpenRC checks that install.sh starts a standalone node under OpenRC. The option --kubeadm needs systemd, so install.sh must
// reject it before it changes the system.
func TestInstallOpenRC(t *testing.T) {
	s := archived(t, OpenRC)
	says(s, 1, "/root/islet/install.sh --kubeadm", "systemd does not run here", "--no-start")
	s.Run(nothing + " && ! test -e /etc/init.d/islet")
	s.Run("/root/islet/install.sh && rc-service islet status && rc-update show default | grep -q islet")
	s.Run("/root/islet/install.sh uninstall --purge && ! test -e /etc/init.d/islet && ! rc-update show | grep -q islet && " + nothing)
}
