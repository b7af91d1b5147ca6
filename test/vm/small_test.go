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

// sleepImage is an image of a static program of 0.7 MB that waits to end.
const sleepImage = "localhost/still:test"

// stillArchive makes that image.
func stillArchive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"gcc", "-static", "-Os", "-s", "-o", filepath.Join(dir, "still"), "./test/vm/still/still.c"},
		{"go", "run", "./packaging/mkimage", "-ref", sleepImage, "-entrypoint", "/still", "-o", filepath.Join(dir, "still.tar"), filepath.Join(dir, "still")},
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
// were, and the machine answers meanwhile. First in 256 MiB, then in 128 MiB with ten pods,
// while metrics are scraped and an image comes in, of 100 MiB in the long form.
func TestSmall(t *testing.T) {
	dist, size, scrapes := os.Getenv("ISLET_DIST"), 10, 2
	if os.Getenv("ISLET_VM_MEMORY") != "" {
		size, scrapes = 100, 6
	}
	if dist == "" {
		t.Skip("no archive to install: set ISLET_DIST (make test-long does)")
	}
	files := map[string]string{"islet.tar.gz": dist, "podtool.tar": machine.Archive(t), "still.tar": stillArchive(t), "large.tar": largeArchive(t, size)}
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
	v.Memory, v.Cores = 128, 1 // as boards with so little have
	v.Reboot()
	step("booted with 128 MiB")
	v.Await("[ $(pgrep -cx still) = 9 ] && pgrep -f '^/podtool count'") // by another program than islet: that is soon larger than what is left
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

// largeArchive is an image of so many MiB that do not compress.
func largeArchive(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"run", "./packaging/mkimage", "-ref", "localhost/large:test", "-entrypoint", "/large0", "-o", filepath.Join(dir, "large.tar")}
	random := rand.NewChaCha8([32]byte{})
	content := make([]byte, 5<<20)
	for i := range size / 5 {
		random.Read(content)
		file := filepath.Join(dir, fmt.Sprint("large", i))
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	c := exec.Command("go", args...)
	c.Dir = machine.Root(t)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "large.tar")
}

// scrape asks for the pages that Prometheus does, every 15 s, and notes of how many
// containers there was memory, and the bytes of the other page.
const scrape = `page() { exec 3<>/dev/tcp/127.0.0.1/10255 && printf "GET $1 HTTP/1.0\r\n\r\n" >&3 && cat <&3; }
while true; do echo $(page /metrics/cadvisor | grep -c ^container_memory_working_set_bytes) $(page /metrics/resource | wc -c) >>/run/scrapes; sleep 15; done
`

// mostPSS is what the agent and its shims may have at rest, in KiB of proportional set size.
const mostPSS = 40 << 10

// waitForRest waits until the node has no more memory than it may have at rest.
func waitForRest(v *VM) {
	v.t.Helper()
	v.Await(fmt.Sprintf("[ $(%s) -le %d ]", pss, mostPSS))
	v.t.Logf("the agent and its shims have %s KiB", strings.TrimSpace(v.Run(pss)))
}

// pss adds up what the agent and its shims have.
const pss = "for p in $(pgrep ^islet); do cat /proc/$p/smaps_rollup; done | awk '/^Pss:/ {n += $2} END {print n}'"

// balance shows where the memory is.
const balance = `grep -E '^Mem|^Slab|^SUnr|^Anon|^Cached' /proc/meminfo; cd /sys/fs/cgroup/kubepods; grep . memory.max memory.current memory.events /proc/pressure/memory; cat /proc/$(pgrep -x islet)/smaps_rollup | grep ^Pss`

// devoured has a pod eat all memory, and demands that nothing but that pod ends of it. What
// a command takes meanwhile is logged; slow is more than any may take: some forty times what it takes
// when all is well, and a tenth of what it takes when all wait for their own programs' pages.
func devoured(v *VM, slow time.Duration) {
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
	if longest > slow {
		v.t.Errorf("the command true took %v while memory was eaten", longest)
	}
	v.t.Logf("it was ended after %v; the command true took %v at most, %v of %d on average", time.Since(start).Round(time.Millisecond),
		longest.Round(time.Millisecond), (sum / time.Duration(n+1)).Round(time.Millisecond), n+1)
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

// hoarder is a pod that, as one of its containers takes memory, waits for the disk in the
// other, but is not ended by the kernel: it takes so many MiB and no more.
const hoarder = `apiVersion: v1
kind: Pod
metadata: {name: hoarder%d}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: files, image: %[2]q, imagePullPolicy: Never, args: [reread, /file, "40"], resources: {requests: {memory: 4Mi}}}
  - {name: heap, image: %[2]q, imagePullPolicy: Never, args: [eat, %[3]q, 10ms], resources: {requests: {memory: 4Mi}}}
`

// sample notes ten times a second, by the clock, how much memory all pods have, and for how
// many microseconds some process has waited for memory since the boot.
const sample = `while true; do echo $EPOCHREALTIME $(</sys/fs/cgroup/kubepods/memory.current) $(sed -n 's/some.*total=//p' /proc/pressure/memory); sleep 0.1; done`

// pressed demands that a pod is evicted because the kernel told that processes wait for
// memory, and not since it was time to look. By chance it is; then it is tried again,
// three times.
// How long it took is logged.
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
		line := v.Await(fmt.Sprintf(`journalctl -b -u islet --no-pager -o short-unix | grep 'pod is evicted' | grep 'default/hoarder%d-edge'`, i))
		v.Await(fmt.Sprintf(`islet pods hoarder%d-edge -o json | grep '"reason": "Evicted"'`, i))
		v.Run("systemctl stop sample; rm /etc/kubernetes/manifests/hoarder.yaml")
		v.Await("! islet pods --no-headers | grep hoarder")
		v.t.Logf("%s", reaction(line, v.Run("cat /run/samples"), most-total/8))
		if !strings.Contains(line, "by=timer") {
			if !strings.Contains(line, "by=kernel") {
				v.t.Errorf("it is not said what made it look: %s", line)
			}
			v.Run(`journalctl -b -u islet --no-pager | grep 'conditions=.*MemoryPressure'`)
			return
		}
	}
	v.t.Error("each time it was the timer")
}

// reaction says how long after the pods had so much memory, and after processes had waited
// for some for 10 ms since, a line of the journal was written.
func reaction(line, samples string, limit int64) string {
	var begin, waited, told float64
	var first int64
	fmt.Sscan(line, &told)
	for sample := range strings.Lines(samples) {
		var at float64
		var current, stalled int64
		if n, _ := fmt.Sscan(sample, &at, &current, &stalled); n < 3 {
			continue // cut off
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
