package vm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// bulk is an image with many files. The test cuts the power while this image is imported.
const bulk = "localhost/bulk:test"

// The constant nextVersion is a version of islet to which the machine is updated. The constant sentConfiguration is a configuration that
// the machine receives.
const (
	nextVersion       = "9.1.0"
	sentConfiguration = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodPidsLimit: 200\nshutdownGracePeriod: 40s\nshutdownGracePeriodCriticalPods: 20s\nmaxPods: 17\n"
)

// manifest returns a pod that runs podtool with limits.
func manifest(name string, args ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: ["%s"], resources: {limits: {memory: 64Mi, cpu: 300m}}}
`, name, machine.Image, strings.Join(args, `", "`))
}

const (
	kubeletConfig = "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, podPidsLimit: 200, readOnlyPort: 10255, staticPodPath: /etc/kubernetes/manifests, cgroupDriver: %s,\n" +
		"  shutdownGracePeriod: 40s, shutdownGracePeriodCriticalPods: 20s}\n"

	diagnose = "ps axfo pid,stat,wchan:22,args | grep -v '\\]$' | tail -45; cat /run/islet/s/*.log; islet pods -o wide; islet status; islet images ls; " +
		"ls /run/islet /run/islet/b; dmesg | grep -i apparmor | tail; journalctl -u islet -b --no-pager -o short-monotonic | tail -40; df -h / | tail -1"
)

// TestNode installs islet from its archive on Debian with systemd and cgroup v2. It checks many features, and reboots and cuts the power
// at random moments.
func TestNode(t *testing.T) {
	cuts := countCuts(t, 5)
	begin := time.Now()
	v := node(t)
	step := func(what string) { t.Logf("%4.0fs %s", time.Since(begin).Seconds(), what) }
	step("installed")
	start := time.Now()
	waitForPods(v, 4)
	step("pods run")
	limits(v, "/sys/fs/cgroup/kubepods/pod*")
	scores(v)
	looks(v)
	measured(v)
	step("figures")
	killed(v)
	step("limits, OOM, exec, logs, restart and kill of the agent")
	crosses(v)
	step("evicted for the memory of all pods, as the kernel told")
	goesOff(v)
	step("off and on in order, with logind and 1970, and without")
	patience := min(time.Since(start)/8, 20*time.Second)
	v.Run("cp /payload/files/p4.yaml /etc/kubernetes/manifests/")
	waitForPods(v, 5)
	v.Run("cp /payload/files/edge.yaml /etc/islet/ && " + edgeArgs + " && systemctl restart islet")
	waitForPods(v, 5)
	for i := range cuts {
		cut(v, i, rand.N(patience))
		sound(v)
		step(fmt.Sprintf("power cut %d survived", i+1))
	}
	systemdDriver(v)
	step("the same with systemd's cgroups")
	users(v)
	step("a pod with users of its own")
	guards(v)
	step("AppArmor: default profile, one of the machine's own, none")
}

// countCuts returns the number of power cuts in ISLET_VM_CUTS, or the given default.
func countCuts(t *testing.T, or int) int { return number(t, "ISLET_VM_CUTS", or) }

// number returns the number in an environment variable, or the given default.
func number(t *testing.T, name string, or int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return or
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// limits checks the limits from the manifests and the configuration in the cgroups of all pods.
func limits(v *VM, cgroups string) {
	v.t.Helper()
	for file, want := range map[string]string{"memory.max": strconv.Itoa(64 << 20), "cpu.max": "30000 100000", "cpu.weight": weight(300), "pids.max": "200"} {
		if out := v.Run("cat " + cgroups + "/" + file + " | sort -u"); strings.TrimSpace(out) != want {
			v.t.Errorf("%s of pods is %q, not %q", file, out, want)
		}
	}
	// crun creates an additional cgroup in a container's scope and sets the limits there.
	for file, want := range map[string]string{"memory.max": strconv.Itoa(64 << 20), "cpu.max": "30000 100000", "memory.oom.group": "1"} { // cpu.weight is missing, because the OCI runtime computes it
		if out := v.Run("for p in " + cgroups + "; do cat $(find $p -mindepth 2 -name " + file + ") | grep -qx '" + want +
			"' || echo $p; done"); out != "" {
			v.t.Errorf("no container has %s %s in %s: %s", file, want, out, v.Run("find "+cgroups+" -name "+file+" | xargs grep ."))
		}
	}
	checkAllocatable(v, filepath.Dir(cgroups))
}

// weight returns the cpu.weight of cgroup v2 for millicores. It is computed from cpu.shares of cgroup v1. The minimum, the default and the
// maximum of cpu.shares become those of cpu.weight.
func weight(milli int) string {
	l := math.Log2(float64(milli * 1024 / 1000))
	return fmt.Sprint(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// checkAllocatable checks the limits of the cgroup of all pods. The memory limit must be the machine's memory minus the reservation of a
// small machine. The limit of process IDs must be the machine's limit minus about a tenth. The weight must be that of all CPUs.
func checkAllocatable(v *VM, kubepods string) {
	v.t.Helper()
	var kib, most uint64
	var cpus, pidMax, threads, pids int
	var weighs string
	if _, err := fmt.Sscan(v.Run("awk '/^MemTotal:/ {print $2}' /proc/meminfo; nproc; cd "+kubepods+
		"; cat memory.max /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max pids.max cpu.weight"), &kib, &cpus, &most, &pidMax,
		&threads, &pids, &weighs); err != nil {
		v.t.Error(err)
		return
	}
	all := min(pidMax, threads)
	if want := all - min(max(all/10, 1024), 16384, all/2); pids != want {
		v.t.Errorf("pids.max of %s is %d, not %d", kubepods, pids, want)
	}
	if want := weight(1000 * cpus); weighs != want {
		v.t.Errorf("cpu.weight of %s is %s, not %s", kubepods, weighs, want)
	}
	want := kib << 10
	if want < 800<<20 {
		want -= 96 << 20
	}
	if most != want {
		v.t.Errorf("memory.max of %s is %d, not %d", kubepods, most, want)
	}
}

// scores checks the oom_score_adj of the agent, its shims, the pause process of a pod with a shared process namespace, and guaranteed
// containers.
func scores(v *VM) {
	v.t.Helper()
	v.Write("/etc/kubernetes/manifests/pair.yaml", strings.Replace(manifest("pair", "count", "1s"), "  containers:",
		"  shareProcessNamespace: true\n  containers:", 1))
	waitForPods(v, 5)
	const adj = "/oom_score_adj"
	for what, c := range map[string]struct{ command, want string }{
		"the agent":              {"cat /proc/$(pgrep -o -x islet)" + adj, "-999"},
		"the shims":              {"for p in $(pgrep -f '/islet-shim[^ ]* serve '); do cat /proc/$p" + adj + "; done | sort -u", "-999"},
		"the init of a pod":      {"islet exec pair-edge -- /podtool cat /proc/1" + adj, "-998"},
		"a container beside it":  {"islet exec pair-edge -- /podtool cat /proc/self" + adj, "-997"},
		"a guaranteed container": {"islet exec p0-edge -- /podtool cat /proc/1" + adj, "-997"},
	} {
		if got := strings.TrimSpace(v.Run(c.command)); got != c.want {
			v.t.Errorf("%s has the oom_score_adj %q, not %s", what, got, c.want)
		}
	}
	v.Run("rm /etc/kubernetes/manifests/pair.yaml")
	waitForPods(v, 4)
}

// looks checks logs, exec and the reason for an OOM kill.
func looks(v *VM) {
	v.t.Helper()
	if out := v.Run("islet logs --tail=1 p0-edge"); strings.TrimSpace(out) == "" {
		v.t.Error("a pod that counts has no log")
	}
	if out := v.Run("islet exec p0-edge -- /podtool ls /"); !strings.Contains(out, "podtool\n") {
		v.t.Errorf("exec printed %q", out)
	}
	v.Run("cp /payload/files/oom.yaml /etc/kubernetes/manifests/")
	v.Await(`islet pods -o json | grep '"reason": "OOMKilled"'`)
	v.Run("rm /etc/kubernetes/manifests/oom.yaml")
	waitForPods(v, 4)
}

// crosses checks that a notification of the kernel causes an eviction when the memory usage of all pods reaches memory.high of their
// cgroup, although the machine has free memory. The periodic check may be first by chance, so there are three attempts.
func crosses(v *VM) {
	v.t.Helper()
	const kubepods = "/sys/fs/cgroup/kubepods/"
	v.Run(`cp /etc/default/islet /root/islet.default && echo 'ISLET_ARGS="--config=/etc/islet/kubelet.yaml --system-reserved=memory=600Mi"' >/etc/default/islet && systemctl restart islet`)
	waitForPods(v, 4)
	told := false
	for i := 0; i < 3 && !told; i++ {
		v.Await("grep -vx max " + kubepods + "memory.high")
		mib := strings.TrimSpace(v.Run("echo $((($(cat " + kubepods + "memory.max) - $(cat " + kubepods + "memory.current)) / 1048576 - 60))"))
		name := fmt.Sprint("hungry", i)
		v.Run("most=$(($(cat " + kubepods + "memory.high))); (until [ $(cat " + kubepods +
			"memory.current) -ge $most ]; do sleep 0.05; done; date +%s.%N >/root/crossed) >/dev/null 2>&1 &")
		v.Write("/etc/kubernetes/manifests/hungry.yaml",
			strings.ReplaceAll(manifest(name, "eat", mib), "limits: {memory: 64Mi, cpu: 300m}", "requests: {memory: 1Mi}"))
		line := v.Await("journalctl -b -u islet --no-pager | grep ' pod=default/" + name + "-edge .* signal=.* by='")
		told = strings.Contains(line, "by=kernel")
		v.t.Logf("a pod took %s MiB, and all pods as much as was told of at %s: %s", mib, strings.TrimSpace(v.Await("cat /root/crossed")), line)
		v.Run("rm /etc/kubernetes/manifests/hungry.yaml")
		waitForPods(v, 4)
	}
	if !told {
		v.t.Error("the periodic check was first in each attempt")
	}
	v.Run("cp /root/islet.default /etc/default/islet && systemctl restart islet")
	waitForPods(v, 4)
	if out := v.Run("systemctl stop islet; cat " + kubepods + "memory.high; systemctl start islet"); strings.TrimSpace(out) != "max" {
		v.t.Errorf("without an agent, memory.high of the pods is %q", out)
	}
	waitForPods(v, 4)
}

// processes is a command that prints the PIDs of containers.
const processes = "pgrep -x podtool | sort"

// killed checks that containers continue to run when the agent is restarted or killed.
func killed(v *VM) {
	v.t.Helper()
	before := v.Run(processes)
	if strings.Count(before, "\n") != 4 {
		v.t.Errorf("processes of containers: %q", before)
	}
	v.Run("systemctl restart islet")
	waitForPods(v, 4)
	v.Run("old=$(systemctl show -P MainPID islet); kill -9 $old; until new=$(systemctl show -P MainPID islet); [ $new != 0 ] && [ $new != $old ]; do sleep 0.2; done")
	waitForPods(v, 4)
	if after := v.Run(processes); after != before {
		v.t.Errorf("processes of containers changed with the agent:\n%s\n%s", before, after)
	}
}

// cut cuts the power a moment after the start of an operation, while a pod writes to its claim. Then it boots the machine and checks the
// node.
func cut(v *VM, round int, moment time.Duration) {
	v.t.Helper()
	what := []struct{ happens, command string }{
		{"an image comes in", "islet images rm " + bulk + " >/dev/null 2>&1; islet images import /payload/files/bulk.tar >/dev/null 2>&1 &"},
		{"pods start", "systemctl stop islet; islet cleanup --config=/etc/islet/kubelet.yaml && systemctl start --no-block islet"},
		{"a configuration is tried", "islet config apply --no-wait /payload/files/sent.yaml"},
		{"a version of islet is tried", "islet update -q --no-wait --older /payload/files/next.tar.gz"},
		{"a pod stops and one is replaced", "cd /etc/kubernetes/manifests && rm p0.yaml && sed 's/20ms/30ms/' /payload/files/p1.yaml >p1.yaml"},
	}[round%5]
	v.t.Logf("power cut %v after the moment when %s", moment.Round(time.Millisecond), what.happens)
	journals(v)
	v.Run(what.command)
	<-time.After(moment)
	v.PowerCut()
	told := lastRecord(v)
	v.Boot()
	v.Run("cp /payload/files/p?.yaml /etc/kubernetes/manifests/")
	// An interrupted trial starts again. If the power failed before the trial was stored, no trial starts.
	v.Await(`islet config show -o json | awk '/"trying": true|"assigned":/ {busy=1} END {exit busy || NR < 5}'`)
	if out := v.Run("ls /var/lib/islet | grep configuration.json | grep -vx configuration.json | cat; islet config show -o json"); strings.Contains(out, "broken") || strings.Contains(out, `"problem":`) {
		v.t.Errorf("configuration of the node: %s", out)
	}
	waitForPods(v, 5)
	nothingLost(v, told)
	v.t.Logf("none of %d records is lost", told+1)
}

// withoutClock checks that pods continue to run when a slow clock is set to the correct time. A board without a battery has such a clock.
func withoutClock(v *VM, pods int) {
	v.t.Helper()
	now, err := strconv.ParseInt(strings.TrimSpace(v.Run("date +%s")), 10, 64)
	if month := int64(30 * 24 * 3600); err != nil || now > time.Now().Unix()-month {
		v.t.Errorf("the machine has the correct time: %d, %v", now, err)
	}
	before := v.Run(processes)
	v.Run(fmt.Sprintf("date -s @%d", time.Now().Unix())) // like the first synchronization over a network
	v.Run("islet exec p0-edge -- /podtool ls /")
	waitForPods(v, pods)
	if after := v.Run(processes); after != before {
		v.t.Errorf("processes of containers changed with the step of the clock:\n%s\n%s", before, after)
	}
}

// edgeArgs is a command that adds the EdgeConfiguration to the agent's flags.
const edgeArgs = `echo ISLET_ARGS=\"--config=/etc/islet/kubelet.yaml --edge-config=/etc/islet/edge.yaml\" >/etc/default/islet`

// users runs a pod with a user namespace. The OCI runtime of the pod's handler supports idmapped mounts. The kernel does not support them
// for tmpfs, so islet doctor must report that.
func users(v *VM) {
	v.t.Helper()
	v.Run(`cp /payload/runc /usr/local/bin/runc-current && chmod 755 /usr/local/bin/runc-current
printf '%s\n' 'apiVersion: islet.dev/v1alpha1' 'kind: EdgeConfiguration' 'runtimeHandlers: [{name: current, ociRuntime: /usr/local/bin/runc-current}]' >/etc/islet/edge.yaml
` + edgeArgs + `
sed 's/name: p1/name: users/; s/^spec:/spec:\n  hostUsers: false\n  runtimeClassName: current/' /payload/files/p1.yaml >/etc/kubernetes/manifests/users.yaml
systemctl restart islet`)
	waitForPods(v, 5)
	if out := v.Run("islet exec users-edge -- /podtool cat /proc/self/uid_map"); strings.Join(strings.Fields(out), " ") != "0 65536 65536" {
		v.t.Errorf("the user namespace of the pod is %q", out)
	}
	if out := v.Run("ps -o uid= -p $(pgrep -u 65536 -x podtool)"); strings.TrimSpace(out) != "65536" {
		v.t.Errorf("on the host the UID of its process is %q", out)
	}
	if out := v.Run("islet doctor --all || true"); !strings.Contains(out, "user-namespaces") {
		v.t.Errorf("islet doctor does not report user namespaces:\n%s", out)
	}
	v.Run("rm /etc/kubernetes/manifests/users.yaml")
	waitForPods(v, 4)
}

// systemdDriver changes the node's cgroup driver to systemd.
func systemdDriver(v *VM) {
	v.t.Helper()
	v.Run("systemctl stop islet; islet cleanup --config=/etc/islet/kubelet.yaml && cp /payload/files/systemd.yaml /etc/islet/kubelet.yaml && rm /etc/kubernetes/manifests/p4.yaml && systemctl start islet")
	waitForPods(v, 4)
	limits(v, "/sys/fs/cgroup/kubepods.slice/kubepods-pod*.slice")
	looks(v)
	killed(v)
}
