package vm

import (
	"fmt"
	"strings"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// ordered returns a pod whose preStop hook writes the time to a file on the host. The container ignores SIGTERM, so it uses its whole grace
// period. The grace period is in seconds.
func ordered(name string, priority, grace int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  priority: %d
  terminationGracePeriodSeconds: %d
  volumes: [{name: disk, hostPath: {path: /var/lib/order, type: DirectoryOrCreate}}]
  containers:
  - name: c
    image: %q
    imagePullPolicy: Never
    args: [stubborn]
    volumeMounts: [{name: disk, mountPath: /order}]
    lifecycle: {preStop: {exec: {command: [/podtool, mark, /order/%[1]s]}}}
`, name, priority, grace, machine.Image)
}

// hookTimes returns the time that the hook of a pod has written.
func hookTimes(v *VM, name string) (at time.Time) {
	v.t.Helper()
	out := v.Run("cat /var/lib/order/" + name)
	at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(out))
	if err != nil {
		v.t.Errorf("the file of the hook of pod %s is %q, which is not a single time", name, out)
	}
	return at
}

// goesOff shuts the machine down, with and without logind. It checks that pods end by priority and that their hooks write to the disk. All
// pods must run again after the next boot, also with a wrong clock.
func goesOff(v *VM) {
	v.t.Helper()
	v.Run("cp /payload/files/first.yaml /payload/files/last.yaml /etc/kubernetes/manifests/")
	waitForPods(v, 6)
	v.Await("systemd-inhibit --list --no-pager | grep -q islet")
	if out := v.Run("cat /etc/systemd/logind.conf.d/99-islet.conf"); !strings.Contains(out, "InhibitDelayMaxSec=40\n") {
		v.t.Errorf("logind's delay was not raised: %q", out)
	}
	v.Clock = "1970-01-01"
	inOrder(v, "with logind", 6)
	v.Clock = ""
	withoutClock(v, 6)
	const logind = "dbus.socket dbus.service systemd-logind.service"
	v.Run("systemctl -q mask --now " + logind)
	inOrder(v, "without logind", 6)
	v.Run("systemctl -q unmask " + logind +
		" && systemctl start dbus.socket systemd-logind && rm /etc/kubernetes/manifests/first.yaml /etc/kubernetes/manifests/last.yaml")
	waitForPods(v, 4)
}

// inOrder reboots and checks that all pods run again. The critical pod must begin to end after the other pod has ended. On a busy machine,
// the hook of the other pod starts seconds late.
func inOrder(v *VM, how string, pods int) {
	v.t.Helper()
	v.Run("rm -f /var/lib/order/*")
	v.Reboot()
	waitForPods(v, pods)
	if between := hookTimes(v, "last").Sub(hookTimes(v, "first")); between < 3*time.Second {
		v.t.Errorf("%s: the critical pod began to end %v after the other one, which needs 7s\n%s", how, between,
			v.Run("{ journalctl -u islet -b -1 --no-pager -o short-monotonic || cat /var/log/islet.log; } | tail -25"))
	}
	if out, code := v.Try("islet pods -o json | grep -e NodeShutdown -e DisruptionTarget -e '\"phase\": \"Failed\"'"); code == 0 {
		v.t.Errorf("%s: a pod still has the status of the shutdown: %s", how, out)
	}
}
