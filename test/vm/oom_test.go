package vm

import "strings"

// ranOut runs a process that belongs to no pod. The process allocates memory until the kernel kills it. ranOut checks that the node
// reports this in an event, a metric and a condition, and that no other process has ended.
func ranOut(v *VM, pods int) {
	v.t.Helper()
	v.Run("systemctl restart islet") // resets the agent's conditions and counters
	waitForPods(v, pods)
	pids := func() string {
		return v.Run("systemctl show -P MainPID -P NRestarts islet; pgrep -f '^/podtool count'; pgrep -x still | sort")
	}
	before := pids()
	v.Run("systemd-run -q --unit=hog --collect -p OOMScoreAdjust=1000 tail /dev/zero") // one endless line
	v.Await("islet events | grep SystemOOM | grep 'System OOM encountered, victim process: tail, pid: [0-9]'")
	v.t.Logf("%s", v.Await(
		"journalctl _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID islet) --no-pager | grep 'conditions=.MemoryPressure. before=..'"))
	v.Await(ask("/metrics") + "| grep '^islet_system_oom_kills_total [1-9]'")
	if after := pids(); after != before {
		v.t.Errorf("the processes of islet and of the pods were\n%s, and are\n%s", before, after)
	}
	v.t.Logf("%s", strings.TrimSpace(v.Run("dmesg | grep 'Out of memory' | tail -3")))
}
