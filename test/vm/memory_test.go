package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// sized is a pod that runs podtool with resources of its own.
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

// TestMemoryCgroups: on pure cgroup v2 containers are slowed before their limit, keep what
// they asked for, end as a whole, do not swap, as static pods do not, and have CPUs of their
// own.
func TestMemoryCgroups(t *testing.T) {
	dist := os.Getenv("ISLET_DIST")
	if dist == "" || os.Getenv("ISLET_VM_MEMORY") == "" {
		t.Skip("it takes minutes: set ISLET_VM_MEMORY and ISLET_DIST (make test-memory does)")
	}
	v := New(t, filepath.Join(machine.Root(t), ".cache"), map[string]string{"islet.tar.gz": dist, "podtool.tar": machine.Archive(t)})
	v.Diagnose = diagnose
	v.Second(512)
	v.Boot()
	v.Run("mkswap /dev/vdc && swapon /dev/vdc")
	v.Run("mkdir -p /root/islet /var/lib/islet/images /etc/islet /etc/kubernetes/manifests && tar xzf /payload/islet.tar.gz --strip-components=1 -C /root/islet && cp /payload/podtool.tar /var/lib/islet/images/")
	v.Write("/etc/islet/kubelet.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\nfeatureGates: {MemoryQoS: true}\n"+
		"memoryReservationPolicy: TieredReservation\nfailSwapOn: false\nmemorySwap: {swapBehavior: LimitedSwap}\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
	v.Run("echo ISLET_ARGS=--config=/etc/islet/kubelet.yaml >/etc/default/islet && /root/islet/install.sh")
	place := func(name, resources string, args ...string) {
		t.Helper()
		v.Write("/etc/kubernetes/manifests/"+name+".yaml", sized(name, resources, args...))
	}
	place("own", "limits: {cpu: 1, memory: 64Mi}", "count", "1001ms")
	place("burst", "requests: {memory: 32Mi}, limits: {memory: 128Mi}", "count", "1002ms")
	place("best", "", "count", "1003ms")
	ready(v, 3)
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
		t.Logf("%s: %s", process, v.Run("cd "+dir+"; grep -H . memory.min memory.low memory.high memory.max memory.swap.max memory.oom.group cpuset.cpus.effective; cd ..; grep -H . memory.min memory.low memory.high; cd ..; grep -H . memory.min memory.low"))
	}
	// A process too many ends the container, not only itself.
	place("group", "limits: {memory: 32Mi}", "count", "1004ms")
	ready(v, 4)
	if out, code := v.Try("islet exec group-edge -- /podtool eat 64"); code == 0 {
		t.Errorf("it ate: %s", out)
	}
	v.Await(`islet pods group-edge -o json | grep '"reason": "OOMKilled"'`)
}
