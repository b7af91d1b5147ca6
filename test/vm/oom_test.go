package vm

import "strings"

// ranOut has a process that is none of a pod take all memory of the machine until the kernel
// kills it, and demands that the node says so, by an event, a metric and a condition, and that
// nothing else ended.
func ranOut(v *VM, pods int) {
	v.t.Helper()
	v.Run("systemctl restart islet") // it knows of no pressure then, and has counted nothing
	waitForPods(v, pods)
	pids := func() string {
		return v.Run("systemctl show -P MainPID -P NRestarts islet; pgrep -f '^/podtool count'; pgrep -x still | sort")
	}
	before := pids()
	v.Run("systemd-run -q --unit=hog --collect -p OOMScoreAdjust=1000 tail /dev/zero") // a line without an end
	v.Await("islet events | grep SystemOOM | grep 'System OOM encountered, victim process: tail, pid: [0-9]'")
	v.t.Logf("%s", v.Await(
		"journalctl _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID islet) --no-pager | grep 'conditions=.MemoryPressure. before=..'"))
	v.Await(ask("/metrics") + "| grep '^islet_system_oom_kills_total [1-9]'")
	if after := pids(); after != before {
		v.t.Errorf("islet, the critical pod and others were\n%s, and are\n%s", before, after)
	}
	v.t.Logf("%s", strings.TrimSpace(v.Run("dmesg | grep 'Out of memory' | tail -3")))
}
