package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// still is an image of a static program of 0.7 MB that waits to end.
const still = "localhost/still:test"

// stillArchive makes that image.
func stillArchive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"gcc", "-static", "-Os", "-s", "-o", filepath.Join(dir, "still"), "./test/vm/still/still.c"},
		{"go", "run", "./packaging/mkimage", "-ref", still, "-entrypoint", "/still", "-o", filepath.Join(dir, "still.tar"), filepath.Join(dir, "still")},
	} {
		c := exec.Command(args[0], args[1:]...)
		c.Dir = machine.Root(t)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return filepath.Join(dir, "still.tar")
}

// unlimited is a pod without requests and limits; class may be empty.
func unlimited(name, class, image string, args ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  priorityClassName: %q
  terminationGracePeriodSeconds: 2
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: ["%s"]}
`, name, class, image, strings.Join(args, `", "`))
}

// TestSmall: a machine that has little memory and no swap runs its pods, and one that eats
// memory without end ends alone: the agent and the critical pod go on as the processes they
// were, and the machine answers meanwhile.
func TestSmall(t *testing.T) {
	dist := os.Getenv("ISLET_DIST")
	if dist == "" {
		t.Skip("no archive to install: set ISLET_DIST (make test does)")
	}
	files := map[string]string{"islet.tar.gz": dist, "podtool.tar": machine.Archive(t), "still.tar": stillArchive(t)}
	v := New(t, filepath.Join(machine.Root(t), ".cache"), files)
	v.Diagnose = "cat /proc/meminfo /proc/pressure/memory; " + diagnose
	v.Memory = 256
	begin := time.Now()
	step := func(what string) {
		t.Helper()
		t.Logf("%4.0fs %s", time.Since(begin).Seconds(), what)
	}
	v.Boot()
	v.Run("mkdir -p /root/islet /var/lib/islet/images /etc/kubernetes/manifests && tar xzf /payload/islet.tar.gz --strip-components=1 -C /root/islet && cp /payload/podtool.tar /payload/still.tar /var/lib/islet/images/")
	v.Write("/etc/kubernetes/manifests/critical.yaml", unlimited("critical", "system-node-critical", machine.Image, "count", "1001ms"))
	for i := range 3 {
		v.Write(fmt.Sprintf("/etc/kubernetes/manifests/p%d.yaml", i), unlimited(fmt.Sprint("p", i), "", still))
	}
	v.Run("/root/islet/install.sh")
	step("installed")
	ready(v, 4)
	step("pods run")
	t.Logf("%s", v.Run(balance))
	devoured(v)
	step("memory was eaten")
	rests(v)
}

// mostPSS is what the agent and its shims may have at rest, in KiB of proportional set size.
const mostPSS = 40 << 10

// rests waits until the node has no more memory than it may have at rest.
func rests(v *VM) {
	v.t.Helper()
	v.Await(fmt.Sprintf("[ $(%s) -le %d ]", pss, mostPSS))
	v.t.Logf("the agent and its shims have %s KiB", strings.TrimSpace(v.Run(pss)))
}

// pss adds up what the agent and its shims have.
const pss = "for p in $(pgrep ^islet); do cat /proc/$p/smaps_rollup; done | awk '/^Pss:/ {n += $2} END {print n}'"

// balance shows where the memory is.
const balance = `grep -E '^Mem|^Slab|^SUnr|^Anon|^Cached' /proc/meminfo; cd /sys/fs/cgroup/kubepods; grep . memory.max memory.current memory.events /proc/pressure/memory; cat /proc/$(pgrep -x islet)/smaps_rollup | grep ^Pss`

// devoured has a pod eat all memory, and demands that nothing but that pod ends of it. What
// a command takes meanwhile is logged.
func devoured(v *VM) {
	v.t.Helper()
	pids := func() string {
		return v.Run("systemctl show -P MainPID islet; pgrep -f '^/podtool count'; pgrep -x still | sort")
	}
	before := pids()
	if score := v.Run("cat /proc/$(pgrep -f '^/podtool count')/oom_score_adj"); strings.TrimSpace(score) != "-997" {
		v.t.Errorf("oom_score_adj of the critical pod is %s", score)
	}
	ended := "for e in $(cat /sys/fs/cgroup/kubepods/memory.events /proc/vmstat | awk '$1==\"oom_kill\" {print $2}'); do [ $e = 0 ] || exit 0; done; journalctl -b -u islet --no-pager | grep -q 'pod is evicted'"
	v.Write("/etc/kubernetes/manifests/eater.yaml", unlimited("eater", "", machine.Image, "eat", "100000"))
	var longest, sum time.Duration
	n, start := 0, time.Now()
	for ; ; n++ {
		at := time.Now()
		v.Run("true")
		took := time.Since(at)
		longest, sum = max(longest, took), sum+took
		if _, code := v.Try(ended); code == 0 {
			break
		}
		if time.Since(start) > bootPatience {
			v.t.Fatalf("nothing was ended for want of memory: %s", v.Run(balance))
		}
	}
	v.t.Logf("it was ended after %v; the command true took %v at most, %v of %d on average", time.Since(start).Round(time.Millisecond), longest.Round(time.Millisecond), (sum / time.Duration(n+1)).Round(time.Millisecond), n+1)
	v.Await(`islet pods eater-edge -o json | grep -E '"reason": "(OOMKilled|Evicted)"'`)
	v.Await(`islet events | grep -E 'SystemOOM|Evicted|EvictionThresholdMet|BackOff'`)
	v.Run("rm /etc/kubernetes/manifests/eater.yaml")
	v.Await("! islet pods --no-headers | grep eater")
	if after := pids(); after != before {
		v.t.Errorf("islet, the critical pod and others were\n%s, and are\n%s", before, after)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(v.Run("systemctl show -P NRestarts islet"))); n != 0 || err != nil {
		v.t.Errorf("the agent was started anew %d times (%v)", n, err)
	}
	v.t.Logf("%s%s", v.Run(balance), v.Run("islet events | tail -12; dmesg | grep -E 'Out of memory|Killed|oom-kill:' | tail"))
}
