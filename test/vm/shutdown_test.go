package vm

import (
	"fmt"
	"strings"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// ordered is a pod whose preStop hook writes the time to a file of the host's disk. It
// takes all of its grace period, in seconds, to end.
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

// hookTimes are the times that the hooks wrote.
func hookTimes(v *VM, name string) (at time.Time) {
	v.t.Helper()
	out := v.Run("cat /var/lib/order/" + name)
	at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(out))
	if err != nil {
		v.t.Errorf("pod %s ended other than once: %q", name, out)
	}
	return at
}

// goesOff turns the machine off in good order, with logind and without it. Pods end by
// priority, their hooks reach the disk, and the next boot starts them all again, also
// where it does not know the time.
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

// inOrder reboots, and demands of so many pods that all are back, and that the critical pod began to
// end when the other had ended. On a busy machine the hook of the other begins seconds late.
func inOrder(v *VM, how string, pods int) {
	v.t.Helper()
	v.Run("rm -f /var/lib/order/*")
	v.Reboot()
	waitForPods(v, pods)
	if between := hookTimes(v, "last").Sub(hookTimes(v, "first")); between < 3*time.Second {
		v.t.Errorf("%s: the critical pod began to end %v after the other, which took 7s\n%s", how, between,
			v.Run("{ journalctl -u islet -b -1 --no-pager -o short-monotonic || cat /var/log/islet.log; } | tail -25"))
	}
	if out, code := v.Try("islet pods -o json | grep -e NodeShutdown -e DisruptionTarget -e '\"phase\": \"Failed\"'"); code == 0 {
		v.t.Errorf("%s: a pod shows the end of the machine still: %s", how, out)
	}
}
