package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// sized returns a pod that runs podtool with the given resources.
func sized(name, resources string, args ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: ["%s"], resources: {%s}}
`, name, machine.Image, strings.Join(args, `", "`), resources)
}

// TestMemoryCgroups checks the memory settings of containers on cgroup v2: throttling before the limit, protected requests, and an OOM
// kill of the whole container. Static pods must not swap. Other pods must have a swap limit in proportion to their request. Guaranteed
// pods must have exclusive CPUs.
func TestMemoryCgroups(t *testing.T) {
	dist := os.Getenv("ISLET_DIST")
	if dist == "" || os.Getenv("ISLET_VM_MEMORY") == "" {
		t.Skip("it takes minutes: set ISLET_VM_MEMORY and ISLET_DIST (make test-memory does)")
	}
	v := New(t, filepath.Join(machine.Root(t), ".cache"), map[string]string{"islet.tar.gz": dist, "podtool.tar": machine.Archive(t)})
	v.Diagnose = diagnose
	v.AddDisk(512)
	v.Boot()
	v.Run("mkswap /dev/vdc && swapon /dev/vdc")
	v.Run(unpack + " && mkdir -p /var/lib/islet/images /etc/kubernetes/manifests && cp /payload/podtool.tar /var/lib/islet/images/")
	v.Write("/etc/islet/kubelet.yaml",
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\nfeatureGates: {MemoryQoS: true}\n"+
			"memoryThrottlingFactor: 0.9\nmemoryReservationPolicy: TieredReservation\nfailSwapOn: false\nmemorySwap: {swapBehavior: LimitedSwap}\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
	v.Run("echo ISLET_ARGS=--config=/etc/islet/kubelet.yaml >/etc/default/islet && /root/islet/install.sh")
	place := func(name, resources string, args ...string) {
		t.Helper()
		v.Write("/etc/kubernetes/manifests/"+name+".yaml", sized(name, resources, args...))
	}
	place("own", "limits: {cpu: 1, memory: 64Mi}", "count", "1001ms")
	place("burst", "requests: {memory: 32Mi}, limits: {memory: 128Mi}", "count", "1002ms")
	place("best", "", "count", "1003ms")
	waitForPods(v, 3)
	for process, want := range map[string]map[string]string{
		"count 1001ms": {"memory.min": "67108864", "memory.high": "max", "memory.swap.max": "0", "memory.oom.group": "1", "cpuset.cpus.effective": "1"},
		"count 1002ms": {"memory.min": "0", "memory.low": "33554432", "memory.high": "124149760", "memory.swap.max": "0", "memory.oom.group": "1", "cpuset.cpus.effective": "0"},
		"count 1003ms": {"memory.min": "0", "memory.low": "0", "memory.swap.max": "0", "memory.oom.group": "1", "cpuset.cpus.effective": "0"},
	} {
		dir := strings.TrimSpace(v.Run("echo /sys/fs/cgroup$(sed 's/^0:://' /proc/$(pgrep -f '^/podtool " + process + "')/cgroup)"))
		for file, value := range want {
			if got := strings.TrimSpace(v.Run("cat " + dir + "/" + file)); got != value {
				t.Errorf("%s of %q is %s, not %s", file, process, got, value)
			}
		}
		t.Logf("%s: %s", process,
			v.Run("cd "+dir+"; grep -H . memory.min memory.low memory.high memory.max memory.swap.max memory.oom.group cpuset.cpus.effective; cd ..; grep -H . memory.min memory.low memory.high; cd ..; grep -H . memory.min memory.low"))
	}
	// If one process exceeds the limit, the kernel kills all processes of the container.
	place("group", "limits: {memory: 32Mi}", "count", "1004ms")
	waitForPods(v, 4)
	if out, code := v.Try("islet exec group-edge -- /podtool eat 64"); code == 0 {
		t.Errorf("the process exceeded its memory limit: %s", out)
	}
	v.Await(`islet pods group-edge -o json | grep '"reason": "OOMKilled"'`)
	throttled(v)
	swaps(v)
	hugePages(v)
	unprotected(v)
}

// unprotected checks that kubepods protects the requests of burstable pods. An agent without MemoryQoS must remove the protection of
// kubepods and pods, and keep the other limits.
func unprotected(v *VM) {
	v.t.Helper()
	const kubepods = "/sys/fs/cgroup/kubepods/"
	pod := strings.TrimSpace(v.Run("dirname /sys/fs/cgroup$(sed 's/^0:://' /proc/$(pgrep -f '^/podtool count 1002ms')/cgroup)"))
	out := v.Run("cat " + kubepods + "memory.low " + kubepods + "burstable/memory.low " + pod + "/memory.low")
	if strings.Contains("\n"+out, "\n0\n") {
		v.t.Errorf("memory.low of kubepods, the class and a burstable pod: %q", out)
	}
	limits := "cat " + pod + "/cpu.weight " + pod + "/memory.max " + kubepods + "memory.max"
	before := v.Run(limits)
	v.Run("sed -i 's/^memoryReservationPolicy:.*/featureGates: {MemoryQoS: false}/; s/^featureGates: {MemoryQoS: true}$//' /etc/islet/kubelet.yaml && systemctl restart islet")
	v.Await("! grep -vx 0 " + kubepods + "memory.min " + kubepods + "memory.low " + kubepods + "burstable/memory.low " + pod + "/memory.low")
	if after := v.Run(limits); after != before {
		v.t.Errorf("other limits of a pod changed from %q to %q", before, after)
	}
}

// hugePages checks that memory that is reserved for huge pages is subtracted only once from the available memory.
func hugePages(v *VM) {
	v.t.Helper()
	const reserved = 64 << 20
	available := func() (n int64) {
		v.t.Helper()
		text := v.Run("islet top node -o json | tr -d ' ' | sed -n 's/^\"availableBytes\":\\([0-9]*\\).*/\\1/p' | head -1")
		if _, err := fmt.Sscan(text, &n); err != nil {
			v.t.Fatalf("available memory %q: %v", text, err)
		}
		return n
	}
	before := available()
	// The measurement may be a second old.
	v.Run("echo 32 >/proc/sys/vm/nr_hugepages && grep -qx 32 /proc/sys/vm/nr_hugepages && sleep 2")
	if taken := before - available(); taken < reserved*3/4 || taken > reserved*7/4 {
		v.t.Errorf("%d bytes are reserved for huge pages, and %d fewer are available", reserved, taken)
	}
	v.Run("echo 0 >/proc/sys/vm/nr_hugepages")
}

// throttled checks that a container that exceeds memory.high is throttled and not killed.
func throttled(v *VM) {
	v.t.Helper()
	v.Write("/etc/kubernetes/manifests/slow.yaml", sized("slow", "requests: {memory: 32Mi}, limits: {memory: 128Mi}", "eat", "120"))
	events := v.Await("d=/sys/fs/cgroup$(sed 's/^0:://' /proc/$(pgrep -f '^/podtool eat 120')/cgroup) && ! grep -qx 'high 0' $d/memory.events && cat $d/memory.events")
	if !strings.Contains(events, "oom_kill 0\n") {
		v.t.Errorf("the container was killed: %s", events)
	}
	v.t.Logf("near its limit a container is slowed: %s", strings.Join(strings.Fields(events), " "))
	v.Run("rm /etc/kubernetes/manifests/slow.yaml")
}

// swaps checks that applied pods get swap in proportion to their memory request (KEP-2400), in whole pages.
func swaps(v *VM) {
	v.t.Helper()
	apply := func(name, resources, every string) string {
		v.Write("/root/"+name+".yaml", sized(name, resources, "count", every))
		v.Run("islet apply -f /root/" + name + ".yaml")
		v.Await("pgrep -f '^/podtool count " + every + "'")
		return strings.TrimSpace(v.Run("cat /sys/fs/cgroup$(sed 's/^0:://' /proc/$(pgrep -f '^/podtool count " + every +
			"')/cgroup)/memory.swap.max"))
	}
	var total, swap float64
	if _, err := fmt.Sscan(v.Run("awk '/^(MemTotal|SwapTotal):/ {print $2}' /proc/meminfo"), &total, &swap); err != nil || swap == 0 {
		v.t.Fatalf("memory %v and swap %v KiB: %v", total, swap, err)
	}
	want := int64(float64(64<<20)/total*swap) / 4096 * 4096
	if got := apply("swapping", "requests: {memory: 64Mi}, limits: {memory: 128Mi}", "1005ms"); got != fmt.Sprint(want) {
		v.t.Errorf("memory.swap.max of 64 MiB of %v KiB is %s, not %d of %v KiB", total, got, want, swap)
	} else {
		v.t.Logf("swap of an applied pod that asks for 64 MiB of %.0f KiB: %s bytes of %.0f KiB", total, got, swap)
	}
	if got := apply("whole", "limits: {memory: 64Mi}", "1006ms"); got != "0" {
		v.t.Errorf("memory.swap.max of a pod whose request is its limit: %s", got)
	}
	// The kernel swaps the memory of a container that exceeds memory.high.
	v.Write("/root/larger.yaml", sized("larger", "requests: {memory: 64Mi}, limits: {memory: 128Mi}", "eat", "122"))
	v.Run("islet apply -f /root/larger.yaml")
	v.Await("islet logs larger | grep 'ate 122 MiB'")
	v.t.Logf("of 122 MiB with a limit of 128 are swapped: %s",
		v.Await("grep -v '^0$' /sys/fs/cgroup$(sed 's/^0:://' /proc/$(pgrep -f '^/podtool eat 122')/cgroup)/memory.swap.current"))
}
