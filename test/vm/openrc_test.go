package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// TestOpenRC installs the Debian package under OpenRC. Debian's OpenRC mounts both cgroup versions by default. The test runs with both
// versions, and then with cgroup v2 only. It checks that pods run again after a shutdown and after a power cut. OpenRC supervises the
// agent. The pods must continue to run while no agent runs. A purge must leave no files. ISLET_PACKAGES and ISLET_PACKAGES_NEXT contain the
// directories of two versions from make packages-two.
func TestOpenRC(t *testing.T) {
	files := payloadOpenRC(t)
	begin := time.Now()
	step := func(what string) { t.Logf("%4.0fs %s", time.Since(begin).Seconds(), what) }
	v := New(t, filepath.Join(machine.Root(t), ".cache"), files)
	v.Init = OpenRC
	v.Diagnose = "rc-status; tail -40 /var/log/islet.log; islet pods -o wide; islet status; ps axfo pid,stat,wchan:22,args | grep -v '\\]$' | tail -45; grep cgroup /proc/self/mountinfo"
	v.Boot()
	v.Run(`[ "$(cat /proc/1/comm)" = openrc-init ] && ! test -e /run/systemd/system && [ "$(stat -fc %T /sys/fs/cgroup /sys/fs/cgroup/unified | xargs)" = "tmpfs cgroup2fs" ]`)
	step("booted")
	v.Run("mkdir -p /var/lib/islet/images /etc/islet /etc/kubernetes/manifests && cp /payload/podtool.tar /var/lib/islet/images/ && cp /payload/files/*.yaml /etc/kubernetes/manifests/ && mv /etc/kubernetes/manifests/cgroupfs.yaml /etc/islet/kubelet.yaml && echo ISLET_ARGS=--config=/etc/islet/kubelet.yaml >/etc/default/islet")
	v.Run("dpkg -i /payload/islet.deb && rc-service islet status && rc-update show default | grep -qw islet")
	step("installed")
	waitForPods(v, 4)
	step("pods run, with cgroups of both versions")

	v.Run("echo 'rc_cgroup_mode=unified' >>/etc/rc.conf")
	inOrder(v, "with OpenRC", 4)
	v.Run(`[ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] && ! test -e /sys/fs/cgroup/unified && rm /etc/kubernetes/manifests/first.yaml /etc/kubernetes/manifests/last.yaml`)
	waitForPods(v, 2)
	limits(v, "/sys/fs/cgroup/kubepods/pod*")
	step("off and on in order; pods run, with cgroups of version 2")
	supervised(v)
	step("restart, kill, stop and start of the agent, and an upgrade")

	v.PowerCut()
	v.Boot()
	waitForPods(v, 2)
	step("power cut survived")
	v.Run("dpkg -P islet")
	if left, _ := v.Try(purged); left != "" {
		t.Errorf("leftovers of a purge:\n%s", left)
	}
	step("purged")
}

// payloadOpenRC returns the files of TestOpenRC: two versions of the package and the manifests.
func payloadOpenRC(t *testing.T) map[string]string {
	t.Helper()
	deb, next := debian(t, "ISLET_PACKAGES"), debian(t, "ISLET_PACKAGES_NEXT")
	dir := t.TempDir()
	for name, content := range map[string]string{
		"p0": manifest("p0", "count", "20ms"), "p1": manifest("p1", "count", "20ms"),
		"first": ordered("first", 0, 7), "last": ordered("last", 2_000_000_000, 4), "cgroupfs": fmt.Sprintf(kubeletConfig, "cgroupfs"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{"podtool.tar": machine.Archive(t), "files": dir, "islet.deb": deb, "next.deb": next}
}

// supervised checks that containers continue to run when the agent is restarted, killed, stopped or upgraded.
func supervised(v *VM) {
	v.t.Helper()
	const agent = "pgrep -f '^/usr/bin/islet agent --config='"
	before := v.Run(processes)
	if strings.Count(before, "\n") != 2 {
		v.t.Errorf("processes of containers: %q", before)
	}
	for _, c := range []struct{ what, command string }{
		{"a restart", "old=$(" + agent + ") && rc-service islet restart && ! test -e /proc/$old"},
		{"kill -9", "old=$(" + agent + ") && kill -9 $old && until new=$(" + agent + ") && [ $new != $old ]; do sleep 0.1; done && rc-service islet status"},
		{"a stop and a start", "rc-service islet stop && ! " + agent + " && ! rc-service islet status && [ \"$(" + processes + " | wc -l)\" = 2 ] && rc-service islet start"},
		{"an upgrade", "old=$(" + agent + ") && dpkg -i /payload/next.deb && ! test -e /proc/$old && dpkg -s islet | grep '^Version: .*next'"},
	} {
		v.Run(c.command)
		waitForPods(v, 2)
		if after := v.Run(processes); after != before {
			v.t.Errorf("%s changed the processes of containers from\n%s to\n%s", c.what, before, after)
		}
	}
}

// purged is a command that prints leftovers of a purge: files, services, processes, interfaces, mounts and cgroups. Manifests and
// configuration files of the administrator do not count.
const purged = `ls -d /etc/init.d/islet /etc/runlevels/*/islet /run/openrc/started/islet /usr/bin/islet /usr/lib/islet /var/lib/islet /run/islet /var/log/islet.log /etc/default/islet 2>/dev/null
	ps -eo comm,args | grep -E '^(islet|podtool|supervise-daemon)'
	ip -o link show | grep -E ' isl'
	grep -E ' /(var/lib|run)/(kubelet|islet|netns)' /proc/self/mountinfo
	find /sys/fs/cgroup -type d -name '*pod*' -o -type d -name '*islet*'`
