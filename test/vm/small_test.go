package vm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// sleepImage is an image with a static program of 0.7 MB that waits for a signal.
const sleepImage = "localhost/still:test"

// stillArchive builds the archive of this image.
func stillArchive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "still"), filepath.Join(dir, "still.tar")
	c := exec.Command("gcc", "-static", "-Os", "-s", "-o", program, "./test/vm/still/still.c")
	c.Dir = machine.Root(t)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	machine.Pack(t, sleepImage, archive, program)
	return archive
}

// unlimited returns a pod without requests and limits. The priority class may be empty.
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

// TestSmall checks a machine with little memory and no swap. One pod allocates memory without end. Only this pod may end. The agent and
// the critical pod must not restart, and the machine must respond meanwhile. The machine has 256 MiB at first. Then it has 128 MiB and ten
// pods, while metrics are scraped and an image is imported (100 MiB in the long test).
func TestSmall(t *testing.T) {
	dist, size, scrapes := os.Getenv("ISLET_DIST"), 10, 2
	if os.Getenv("ISLET_VM_MEMORY") != "" {
		size, scrapes = 100, 6
	}
	if dist == "" {
		t.Skip("no archive to install: set ISLET_DIST (make test-long does)")
	}
	files := map[string]string{"islet.tar.gz": dist, "podtool.tar": machine.Archive(t), "still.tar": stillArchive(t), "large.tar": largeArchive(t, "localhost/large:test", size)}
	v := New(t, filepath.Join(machine.Root(t), ".cache"), files)
	v.Diagnose = "cat /proc/meminfo /proc/pressure/memory; " + diagnose
	v.Memory = 256
	begin := time.Now()
	step := func(what string) {
		t.Helper()
		t.Logf("%4.0fs %s", time.Since(begin).Seconds(), what)
	}
	v.Boot()
	v.Run(unpack + " && mkdir -p /var/lib/islet/images /etc/kubernetes/manifests && cp /payload/podtool.tar /payload/still.tar /var/lib/islet/images/")
	v.Write("/etc/default/islet", "ISLET_ARGS='--pod-manifest-path=/etc/kubernetes/manifests --seccomp-default --read-only-port=10255'\n")
	v.Write("/etc/kubernetes/manifests/critical.yaml", unlimited("critical", "system-node-critical", machine.Image, "count", "1001ms"))
	place := func(from, to int) {
		for i := from; i < to; i++ {
			v.Write(fmt.Sprintf("/etc/kubernetes/manifests/p%d.yaml", i), unlimited(fmt.Sprint("p", i), "", sleepImage))
		}
	}
	place(0, 3)
	v.Run("/root/islet/install.sh")
	step("installed")
	waitForPods(v, 4)
	step("pods run")
	t.Logf("%s", v.Run(balance))
	devoured(v, 10*time.Second)
	step("memory was eaten")
	waitForRest(v)
	pressed(v)
	step("the kernel told")
	ranOut(v, 4)
	step("the kernel killed")
	place(3, 9)
	v.Memory, v.Cores = 128, 1 // as on boards with this amount of memory
	v.Reboot()
	step("booted with 128 MiB")
	v.Await("[ $(pgrep -cx still) = 9 ] && pgrep -f '^/podtool count'") // pgrep, because starting islet needs more memory than is free
	step("ten pods run")
	waitForPods(v, 10)
	step("and are ready")
	waitForRest(v)
	step("at rest")
	t.Logf("%s", v.Run(balance))
	v.Write("/root/scrape", scrape)
	v.Run("systemd-run -q --unit=scrape --collect bash /root/scrape")
	devoured(v, 20*time.Second)
	step("memory was eaten")
	v.Run("islet images import /payload/large.tar")
	step("an image was imported")
	waitForPods(v, 10)
	v.Await(fmt.Sprintf("[ $(wc -l </run/scrapes) -ge %d ]", scrapes))
	v.Run("systemctl stop scrape")
	pages := v.Run("cat /run/scrapes")
	for line := range strings.Lines(pages) {
		if fields := strings.Fields(line); len(fields) != 2 || fields[0] == "0" || fields[1] == "0" {
			t.Errorf("a scrape failed: %q", line)
		}
	}
	t.Logf("containers and bytes of scrapes:\n%s", pages)
	waitForRest(v)
	t.Logf("%s", v.Run(balance))
	step("at rest")
}

// largeArchive returns the archive of an image with the given size in MiB. Its content does not compress.
func largeArchive(t *testing.T, ref string, size int) string {
	t.Helper()
	dir := t.TempDir()
	archive, files := filepath.Join(dir, "large.tar"), []string(nil)
	random := rand.NewChaCha8([32]byte{})
	content := make([]byte, 5<<20)
	for i := range size / 5 {
		random.Read(content)
		file := filepath.Join(dir, fmt.Sprint("large", i))
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	machine.Pack(t, ref, archive, files...)
	return archive
}

// scrape is a script that requests the pages for Prometheus every 15 s. It records the number of containers with a memory metric, and the
// size of the other page.
const scrape = `page() { exec 3<>/dev/tcp/127.0.0.1/10255 && printf "GET $1 HTTP/1.0\r\n\r\n" >&3 && cat <&3; }
while true; do echo $(page /metrics/cadvisor | grep -c ^container_memory_working_set_bytes) $(page /metrics/resource | wc -c) >>/run/scrapes; sleep 15; done
`

// mostPSS is the maximum memory of the agent and its shims on an idle node, in KiB of proportional set size.
const mostPSS = 40 << 10

// waitForRest waits until the memory of the agent and its shims is at most mostPSS.
func waitForRest(v *VM) {
	v.t.Helper()
	v.Await(fmt.Sprintf("[ $(%s) -le %d ]", pss, mostPSS))
	v.t.Logf("the agent and its shims have %s KiB", strings.TrimSpace(v.Run(pss)))
}

// pss is a command that prints the memory of the agent and its shims.
const pss = "for p in $(pgrep ^islet); do cat /proc/$p/smaps_rollup; done | awk '/^Pss:/ {n += $2} END {print n}'"

// balance is a command that prints the memory usage of the machine.
const balance = `grep -E '^Mem|^Slab|^SUnr|^Anon|^Cached' /proc/meminfo; cd /sys/fs/cgroup/kubepods; grep . memory.max memory.current memory.events /proc/pressure/memory; cat /proc/$(pgrep -x islet)/smaps_rollup | grep ^Pss`

// devoured runs a pod that allocates all memory, and checks that no other pod ends. It logs the duration of commands meanwhile. The
// parameter slow is the limit for a command. This limit is about forty times the normal duration. If all processes had to wait for the
// pages of their programs, a command would take about ten times this limit.
func devoured(v *VM, slow time.Duration) {
	v.t.Helper()
	pids := func() string {
		return v.Run("systemctl show -P MainPID islet; pgrep -f '^/podtool count'; pgrep -x still | sort")
	}
	before := pids()
	if score := v.Run("cat /proc/$(pgrep -f '^/podtool count')/oom_score_adj"); strings.TrimSpace(score) != "-997" {
		v.t.Errorf("oom_score_adj of the critical pod is %s", score)
	}
	ended := "for e in $(cat /sys/fs/cgroup/kubepods/memory.events /proc/vmstat | awk '$1==\"oom_kill\" {print $2}'); do [ $e = 0 ] || exit 0; done; journalctl -b -u islet --no-pager | grep -q ' pod=.* signal=.* by='"
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
			v.t.Fatalf("no process was killed or evicted: %s", v.Run(balance))
		}
	}
	if longest > slow {
		v.t.Errorf("the command true took %v under memory pressure", longest)
	}
	v.t.Logf("the pod ended after %v; the command true took %v at most, %v of %d on average", time.Since(start).Round(time.Millisecond),
		longest.Round(time.Millisecond), (sum / time.Duration(n+1)).Round(time.Millisecond), n+1)
	v.Await(`islet pods eater-edge -o json | grep -E '"reason": "(OOMKilled|Evicted)"'`)
	v.Await(`islet events | grep -E 'SystemOOM|Evicted|EvictionThresholdMet|BackOff'`)
	v.Run("rm /etc/kubernetes/manifests/eater.yaml")
	v.Await("! islet pods --no-headers | grep eater")
	if after := pids(); after != before {
		v.t.Errorf("the processes of islet and of the pods were\n%s, and are\n%s", before, after)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(v.Run("systemctl show -P NRestarts islet"))); n != 0 || err != nil {
		v.t.Errorf("the agent was restarted %d times (%v)", n, err)
	}
	v.t.Logf("%s%s", v.Run(balance), v.Run("islet events | tail -12; dmesg | grep -E 'Out of memory|Killed|oom-kill:' | tail"))
}

// hoarder is a pod with two containers. The first container reads a file again and again. The second container allocates memory, so the
// first must read the file from the disk each time. The allocated memory is limited, so the kernel kills no process.
const hoarder = `apiVersion: v1
kind: Pod
metadata: {name: hoarder%d}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: files, image: %[2]q, imagePullPolicy: Never, args: [reread, /file, "40"], resources: {requests: {memory: 4Mi}}}
  - {name: heap, image: %[2]q, imagePullPolicy: Never, args: [eat, %[3]q, 10ms], resources: {requests: {memory: 4Mi}}}
`

// sample is a script that records the time, the memory of all pods, and the total memory stall time in microseconds. It runs ten times per
// second.
const sample = `while true; do echo $EPOCHREALTIME $(</sys/fs/cgroup/kubepods/memory.current) $(sed -n 's/some.*total=//p' /proc/pressure/memory); sleep 0.1; done`

// pressed checks that a notification of the kernel about stalled processes causes an eviction before the periodic check does. The periodic
// check may be first by chance, so there are four attempts. The function logs the duration.
func pressed(v *VM) {
	v.t.Helper()
	var most, total int64
	if _, err := fmt.Sscan(v.Run("cat /sys/fs/cgroup/kubepods/memory.max; awk '/^MemTotal:/ {print $2*1024}' /proc/meminfo"), &most,
		&total); err != nil {
		v.t.Fatal(err)
	}
	v.Write("/root/sample", sample)
	for i := range 4 {
		v.Run("systemd-run -q --unit=sample --collect -p StandardOutput=truncate:/run/samples bash /root/sample")
		v.Write("/etc/kubernetes/manifests/hoarder.yaml", fmt.Sprintf(hoarder, i, machine.Image, fmt.Sprint(most>>20-16)))
		line := v.Await(fmt.Sprintf(`journalctl -b -u islet --no-pager -o short-unix | grep ' pod=default/hoarder%d-edge .* signal=.* by='`, i))
		v.Await(fmt.Sprintf(`islet pods hoarder%d-edge -o json | grep '"reason": "Evicted"'`, i))
		v.Run("systemctl stop sample; rm /etc/kubernetes/manifests/hoarder.yaml")
		v.Await("! islet pods --no-headers | grep hoarder")
		v.t.Logf("%s", reaction(line, v.Run("cat /run/samples"), most-total/8))
		if !strings.Contains(line, "by=timer") {
			if !strings.Contains(line, "by=kernel") {
				v.t.Errorf("the log line contains no cause: %s", line)
			}
			v.Run(`journalctl -b -u islet --no-pager | grep 'conditions=.*MemoryPressure'`)
			return
		}
	}
	v.t.Error("the periodic check was first in each attempt")
}

// reaction returns the delays of a journal line. The first delay begins when the memory of the pods has reached the limit. The second delay
// begins when processes have waited for memory for 10 ms since then.
func reaction(line, samples string, limit int64) string {
	var begin, waited, told float64
	var first int64
	fmt.Sscan(line, &told)
	for sample := range strings.Lines(samples) {
		var at float64
		var current, stalled int64
		if n, _ := fmt.Sscan(sample, &at, &current, &stalled); n < 3 {
			continue // an incomplete line
		}
		switch {
		case begin == 0 && current >= limit:
			begin, first = at, stalled
		case begin > 0 && waited == 0 && stalled >= first+10000:
			waited = at
		}
	}
	return fmt.Sprintf("evicted %.2f s after the pods had more than %d bytes, %.2f s after processes waited for memory since: %s",
		told-begin, limit, told-waited, line)
}
