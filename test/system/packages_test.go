package system

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

func TestMain(m *testing.M) {
	machine.Main()
	os.Exit(m.Run())
}

// packages returns the directory of make packages-one for this version or for the next one.
func packages(t *testing.T, next bool) string {
	t.Helper()
	name := "ISLET_PACKAGES"
	if next {
		name = "ISLET_PACKAGES_NEXT"
	}
	dir := os.Getenv(name)
	if dir == "" {
		t.Skipf("%s names no directory of packages: make test-system", name)
	}
	return dir
}

// packaged returns a system with packages in /payload, an image, and the manifests of n pods. The kind of the packages is "deb" or "rpm".
func packaged(t *testing.T, init []string, kind string, n int) *System {
	t.Helper()
	payload := map[string]string{"podtool.tar": machine.Archive(t)}
	for _, next := range []bool{false, true} {
		dir := packages(t, next)
		for _, name := range []string{"islet", "islet-cni", "islet-kubelet"} {
			pattern := map[string]string{"deb": name + "_*_amd64.deb", "rpm": name + "-[0-9]*.x86_64.rpm"}[kind]
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(found) != 1 {
				t.Fatalf("%s: %v %v", name, found, err)
			}
			if next {
				name += "-next"
			}
			payload[name+"."+kind] = found[0]
		}
	}
	s := New(t, init, payload)
	for i := range n {
		file := filepath.Join(s.Dir, "payload", fmt.Sprintf("p%d.yaml", i))
		if err := os.WriteFile(file,
			fmt.Appendf(nil, "apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec:\n  terminationGracePeriodSeconds: 2\n  containers:\n  - {name: c, image: %q, imagePullPolicy: Never, args: [count, 20ms]}\n", i, machine.Image), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.Boot()
	s.Run("mkdir -p /var/lib/islet/images /etc/kubernetes/manifests && cp /payload/podtool.tar /var/lib/islet/images/ && find /payload -name 'p*.yaml' -exec install -m 666 -t /etc/kubernetes/manifests {} +")
	return s
}

// waitForPods waits until exactly n pods exist and run.
func waitForPods(s *System, n int) {
	s.t.Helper()
	s.Await(fmt.Sprintf(`islet pods --no-headers 2>&1 | awk '{print} $2=="1/1" && $3=="Running" {r++} END {exit !(NR==%d && r==%d)}'`, n, n))
}

// counting is a command that prints the PIDs of pods in the system.
const counting = "pgrep -x podtool | sort -n"

// speaks waits until the log of a pod has content.
func speaks(s *System, pod string) {
	s.t.Helper()
	late, tick := time.After(machine.WaitTimeout), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		if logs, _ := filepath.Glob(s.At("/var/log/pods/*_" + pod + "-edge_*/c/0.log")); len(logs) > 0 {
			if fi, err := os.Stat(logs[0]); err == nil && fi.Size() > 0 {
				return
			}
		}
		select {
		case <-tick.C:
		case <-late:
			s.t.Fatalf("pod %s wrote nothing", pod)
		}
	}
}

// A follower reads a pod's log like kubectl logs -f, and reconnects when the connection ends.
type follower struct {
	came chan time.Time // the times of lines; closed when the follower ends
}

// follow follows a log at the agent's local socket until ctx ends.
func follow(ctx context.Context, s *System, pod string) *follower {
	f := &follower{came: make(chan time.Time, 1<<16)}
	socket := s.At("/run/islet/islet.sock")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	go func() {
		defer close(f.came)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet,
				"http://islet/containerLogs/default/"+pod+"-edge/c?follow=true&tailLines=1", nil)
			if resp, err := client.Do(req); err == nil {
				if resp.StatusCode == http.StatusOK {
					for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
						f.came <- time.Now()
					}
				}
				resp.Body.Close()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return f
}

// gap ends the follower and returns the longest time without a line, and the number of lines.
func (f *follower) gap(stop func()) (longest time.Duration, lines int) {
	stop()
	last := time.Time{}
	for at := range f.came {
		if !last.IsZero() {
			longest = max(longest, at.Sub(last))
		}
		last = at
		lines++
	}
	return longest, lines
}

// A course contains the durations of an installation and an upgrade.
type course struct {
	installed, first, all time.Duration // since the start of the command: its end, the first line of the first pod, all pods ready
	upgraded, gap         time.Duration // duration of the command, and the longest gap in a followed log
}

func (c course) String() string {
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("installed after %v, the first pod ran after %v, all were ready after %v; the upgrade took %v, a log that was followed stood still for %v",
		ms(c.installed), ms(c.first), ms(c.all), ms(c.upgraded), ms(c.gap))
}

// upgraded installs a package and then the next version while a log is followed. It checks that no container restarts.
func upgraded(s *System, pods int, install, upgrade string) (c course) {
	s.t.Helper()
	began := time.Now()
	s.Run(install)
	c.installed = time.Since(began)
	speaks(s, "p0")
	c.first = time.Since(began)
	waitForPods(s, pods)
	c.all = time.Since(began)

	before := s.Run(counting)
	if strings.Count(before, "\n") != pods {
		s.t.Errorf("processes of %d pods: %q", pods, before)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	f := follow(ctx, s, "p0")
	<-f.came
	began = time.Now()
	s.Run(upgrade)
	c.upgraded = time.Since(began)
	waitForPods(s, pods)
	c.gap, _ = f.gap(stop)
	if after := s.Run(counting); after != before {
		s.t.Errorf("an upgrade changed the pods' processes from\n%s to\n%s", before, after)
	}
	return c
}

// TestPackages checks the installation, upgrade, removal and purge of the Debian packages under systemd.
func TestPackages(t *testing.T) {
	s := packaged(t, Systemd, "deb", 4)
	t.Log(upgraded(s, 4, "dpkg -i /payload/islet.deb", "dpkg -i /payload/islet-next.deb"))
	s.Run(`[ "$(systemctl is-enabled islet.service)" = enabled ] && systemctl is-active islet.service`)
	s.Run(`[ -z "$(find /etc/kubernetes/manifests -type f ! -perm 600)" ] && [ "$(stat -c %a /usr/lib/systemd/system/islet.service)" = 600 ]`)
	runBenchmark(t, s, "islet.service")
	if out := s.Run("islet status"); !strings.Contains(out, "crun 1.21") {
		t.Errorf("the OCI runtime of the package is not used:\n%s", out)
	}
	before := s.Run(counting)
	s.Run(`echo "ISLET_ARGS='--pod-manifest-path=/etc/kubernetes/manifests --v=2'" >>/etc/default/islet && dpkg -i --force-confdef --force-confold /payload/islet.deb && grep -q v=2 /etc/default/islet && sed -i '$d' /etc/default/islet`)
	waitForPods(s, 4)
	underLoad(t, s, func(goesOn func()) {
		const counts = "pgrep -fa '[c]ount 20ms$' | sort -n"
		calm := s.Run(counts)
		for _, what := range []string{"an upgrade", "the same version again"} {
			s.Run("dpkg -i /payload/islet-next.deb")
			goesOn()
			if now := s.Run(counts); now != calm || strings.Count(now, "\n") != 4 {
				t.Errorf("%s under load changed the pods' processes from\n%s to\n%s", what, calm, now)
			}
		}
	})
	waitForPods(s, 4)
	s.Run("systemctl disable islet.service && dpkg -i /payload/islet-next.deb && ! systemctl is-enabled islet.service && systemctl is-active islet.service && systemctl enable islet.service")
	waitForPods(s, 4)
	s.Run("systemctl stop islet.service && dpkg -i /payload/islet.deb && ! systemctl is-active islet.service && systemctl start islet.service")
	waitForPods(s, 4)
	s.Run(`printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d
		old=$(systemctl show -P MainPID islet) && dpkg -i /payload/islet-next.deb && [ $old = $(systemctl show -P MainPID islet) ] && rm /usr/sbin/policy-rc.d`)
	if after := s.Run(counting); after != before {
		t.Errorf("upgrades changed the pods' processes from\n%s to\n%s", before, after)
	}

	s.Run("dpkg -L islet | while read -r f; do if [ -f $f ]; then echo $f; fi; done >/root/files")
	s.Run("dpkg -r islet")
	if left, _ := s.Try(counting); left != "" {
		t.Errorf("processes of pods are left: %s", left)
	}
	s.Run("test -d /var/lib/islet && test -f /etc/default/islet && ! test -e /usr/bin/islet && ! ip link show islet0")
	// A removal and a purge both delete the configuration file of logind for the shutdown delay.
	const logind = "/etc/systemd/logind.conf.d/99-islet.conf"
	s.Run(`printf '%s\n' 'apiVersion: kubelet.config.k8s.io/v1beta1' 'kind: KubeletConfiguration' 'shutdownGracePeriod: 40s' >/root/kubelet.yaml
		echo "ISLET_ARGS='--pod-manifest-path=/etc/kubernetes/manifests --config=/root/kubelet.yaml'" >>/etc/default/islet && dpkg -i /payload/islet.deb`)
	waitForPods(s, 4)
	s.Await("grep -q 'InhibitDelayMaxSec=40' " + logind)
	s.Run("cp " + logind + " /root/logind && dpkg -r islet && ! test -e " + logind + " && mv /root/logind " + logind +
		" && dpkg -P islet && ! test -e " + logind)
	if left := strings.TrimSpace(s.Run("while read -r f; do if [ -e $f ]; then echo $f; fi; done </root/files")); left != "" {
		t.Errorf("files are left after a purge: %s", left)
	}
	s.Run("! test -e /var/lib/islet && ! test -e /run/islet && test -f /etc/kubernetes/manifests/p0.yaml && ! find /etc/systemd /var/lib/systemd -name '*islet*' | grep .")
}

// TestPackagesLook checks that a package is installed on a board on which pods cannot run. The package must print the reason, and must not
// change the boot files.
func TestPackagesLook(t *testing.T) {
	s := packaged(t, Systemd, "deb", 0)
	const needs, line = "this machine needs a change", "console=tty1 root=/dev/mmcblk0p2 rootwait"
	s.Run("mkdir -p /boot/firmware && echo '" + line + "' >/boot/firmware/cmdline.txt")
	// The cgroup controllers of Raspberry Pi OS lack the memory controller. Only dpkg runs in a mount namespace that simulates this.
	says(s, 0, `unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup && echo cpuset cpu io pids >/sys/fs/cgroup/cgroup.controllers && dpkg -i /payload/islet.deb'`,
		needs, "the memory cgroup controller is missing",
		"append cgroup_enable=memory cgroup_memory=1 to the line in /boot/firmware/cmdline.txt and reboot")
	if got := s.Run("systemctl is-active islet.service >/dev/null && cat /boot/firmware/cmdline.txt && ls /boot/firmware"); got != line+
		"\ncmdline.txt\n" {
		t.Errorf("the package changed the boot files: %s", got)
	}
	if out := s.Run("dpkg -r islet && dpkg -i /payload/islet.deb"); strings.Contains(out, needs) {
		t.Error(out)
	}
	// A tool that builds an image has no init, and runs on another machine than the finished image.
	if out := s.Run(`dpkg -r islet && unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup && echo cpu io pids >/sys/fs/cgroup/cgroup.controllers && mount -t tmpfs none /run && mount --bind /dev/null /sbin/openrc-run && dpkg -i /payload/islet.deb' && systemctl start islet.service`); strings.Contains(out, needs) {
		t.Error(out)
	}
	// A program with a build time in the future simulates a slow clock.
	says(s, 0, "touch -d '3 days' /usr/bin/islet && sh /var/lib/dpkg/info/islet.postinst configure", needs,
		"before this program was built", "-> set it")
	s.Run("dpkg -P islet")
}

// TestKubelet checks that the packages islet-kubelet and islet-cni provide all that kubeadm needs. A purge must remove all their files.
func TestKubelet(t *testing.T) {
	s := packaged(t, Systemd, "deb", 0)
	all := "/payload/islet.deb /payload/islet-cni.deb /payload/islet-kubelet.deb"
	// An interface that accepts router advertisements must continue to accept them. Another interface must not begin to accept them.
	s.Run("ip link add wan0 type veth peer name own0 && echo 0 >/proc/sys/net/ipv6/conf/own0/accept_ra")
	const hears = "[ $(cat /proc/sys/net/ipv6/conf/wan0/accept_ra) = 2 ] && [ $(cat /proc/sys/net/ipv6/conf/own0/accept_ra) = 0 ]"
	s.Run("dpkg -i " + all)
	s.Run(hears + " && [ $(cat /proc/sys/net/ipv6/conf/all/forwarding) = 1 ]")
	// At the next boot, the settings are applied before the agent starts.
	s.Run("echo 0 >/proc/sys/net/ipv6/conf/all/forwarding && echo 1 >/proc/sys/net/ipv6/conf/wan0/accept_ra && echo 0 >/proc/sys/net/ipv4/ip_forward && /lib/systemd/systemd-sysctl")
	s.Run("{ [ $(cat /proc/sys/net/ipv6/conf/wan0/forwarding) = 0 ] || " + hears + "; } && [ $(cat /proc/sys/net/ipv4/ip_forward) = 1 ]")
	const waiting = "systemctl is-active islet-cri.service && ! systemctl is-active islet.service && ! systemctl is-enabled islet.service && systemctl is-enabled kubelet.service && test -S /run/islet/cri.sock"
	s.Run(waiting)
	s.Run(`[ "$(kubelet --version)" = "Kubernetes v1.37.2" ] && [ "$(stat -c %a /etc/crictl.yaml)" = 644 ] && [ "$(readlink /opt/cni/bin/bridge)" = /usr/bin/islet ]`)
	s.Run(`[ "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 ]`)
	s.Run("dpkg -i " + strings.ReplaceAll(all, ".deb", "-next.deb"))
	s.Run(waiting)
	// kubeadm writes this file with mode 644.
	s.Run(`mkdir -p /var/lib/kubelet && printf '%s\n' 'apiVersion: kubelet.config.k8s.io/v1beta1' 'kind: KubeletConfiguration' 'staticPodPath: /etc/kubernetes/manifests' 'failSwapOn: false' >/var/lib/kubelet/config.yaml && chmod 644 /var/lib/kubelet/config.yaml
		echo 'KUBELET_EXTRA_ARGS=--kubeconfig= --bootstrap-kubeconfig= --run-dir=/run/other' >/etc/default/kubelet && systemctl start kubelet.service`)
	s.Run(`systemctl is-active kubelet.service && ! systemctl is-active islet-cri.service && [ "$(stat -c %a /var/lib/kubelet/config.yaml)" = 600 ]`)
	// systemd accepts the file, which a shell reads in another way.
	s.Run("test -e /run/other && dpkg -P islet-kubelet islet-cni islet && ! test -e /run/other && ! test -e /usr/bin/kubelet && ! test -e /opt/cni/bin/bridge && ! test -e /etc/crictl.yaml && ! pgrep -x islet")
	// A changed configuration file may belong to another kubelet, so the purge keeps it.
	s.Run("! test -e /etc/default/islet && grep -q bootstrap /etc/default/kubelet && rm /etc/default/kubelet")
}
