package node

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/vm"
	corev1 "k8s.io/api/core/v1"
)

// virtual joins a virtual machine to the cluster with kubeadm and all its checks. The machine runs Debian with cgroup v2 and the cgroup
// driver systemd. This is the short form of TestKubeadmBoot.
func virtual(t *testing.T, c *cluster.Cluster) *vm.VM {
	t.Helper()
	dist := os.Getenv("ISLET_DIST")
	if dist == "" {
		t.Skip("no archive to install: set ISLET_DIST (make test-long does)")
	}
	name, join := cluster.Name(t), c.JoinCommand(t)
	v := vm.New(t, filepath.Join(machine.Root(t), ".cache"), map[string]string{"islet.tar.gz": dist, "podtool.tar": machine.Archive(t), "kubeadm": join[0]})
	v.Diagnose = "islet status; islet pods -A -o wide; journalctl -u kubelet -u islet-cri -b --no-pager -o short-monotonic | tail -60"
	v.Cable = vm.NATCable(c.Guest(t))
	v.Boot()
	v.SetAddress()
	v.Write("/etc/hosts", "127.0.0.1 localhost edge\n"+v.Cable.Address+" "+name+"\n")
	v.Write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\"--cgroup-driver=systemd --node-ip="+v.Cable.Address+"\"\n")
	v.Run("mkdir -p /root/islet /var/lib/islet/images && tar xzf /payload/islet.tar.gz --strip-components=1 -C /root/islet && cp /payload/podtool.tar /var/lib/islet/images/ && /root/islet/install.sh --kubeadm")
	out := v.Run("/payload/kubeadm " + strings.Join(append(join[1:], "--node-name="+name, cri), " "))
	if !strings.Contains(out, "This node has joined the cluster") || strings.Contains(out, "WARNING") {
		t.Errorf("kubeadm join has failed or has printed a warning:\n%s", out)
	}
	c.AwaitNode(t, name, "to be ready", cluster.NodeReady)
	return v
}

// slice returns the cgroup path of a burstable pod under the cgroup driver systemd.
func slice(p *corev1.Pod) string {
	return "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(string(p.UID), "-",
		"_") + ".slice"
}

// holdTo returns the limits of a pod and the limits of its only container: bytes of memory, and microseconds of CPU time per 100 ms. crun
// nests several cgroups for a container, so the lowest limit applies.
func holdTo(v *vm.VM, slice string) (pod, own [2]int64, all string) {
	own = [2]int64{math.MaxInt64, math.MaxInt64}
	pod = own
	all = v.Run("find " + slice + " -name memory.max -o -name cpu.max | while read f; do echo $f $(cat $f); done")
	for line := range strings.Lines(all) {
		f := strings.Fields(line)
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue // the value is "max"
		}
		of, kind := &own, 0
		if filepath.Dir(f[0]) == slice {
			of = &pod
		}
		if filepath.Base(f[0]) == "cpu.max" {
			kind = 1
		}
		of[kind] = min(of[kind], n)
	}
	return pod, own, all
}

// TestResizeSystemd checks that pods are resized in place under the cgroup driver systemd with cgroup v2. The container and the pod must
// have the new limits, also after systemctl daemon-reload and a SIGKILL of the agent. The same applies to pod-level resources.
func TestResizeSystemd(t *testing.T) {
	t.Parallel()
	c := start(t)
	begin := time.Now()
	step := func(what string) { t.Logf("%4.0fs %s", time.Since(begin).Seconds(), what) }
	v := virtual(t, c)
	step("joined")
	ns := c.Namespace(t)
	c.Apply(t, pod(ns, "a", "", "resources: "+sized("100m", "200m", "32Mi", "64Mi"), "sleep")+
		pod(ns, "whole", "resources: "+sized("100m", "200m", "32Mi", "64Mi"), "", "sleep"))
	before := c.AwaitReady(t, ns, "a", "whole")
	step("pods run")
	holds := func(name string, memory int64, quota int64) {
		t.Helper()
		pod, own, all := holdTo(v, slice(before[name]))
		want := [2]int64{memory << 20, quota}
		if name == "whole" {
			own = want // the container has no limits
		}
		if pod != want || own != want {
			t.Errorf("the limits of %s are %v, those of its container %v, not %v:\n%s", name, pod, own, want, all)
		}
	}
	same := func(name string, p *corev1.Pod) {
		t.Helper()
		if container(p) != container(before[name]) {
			t.Errorf("%s was restarted: %+v", name, p.Status.ContainerStatuses)
		}
	}
	holds("a", 64, 20000)
	holds("whole", 64, 20000)
	step("held")
	v.Reboot()
	v.SetAddress()
	for name, p := range before { // the cgroups have the same names as before the reboot
		before[name] = c.AwaitPod(t, ns, name, "to be ready in a new container", func(now *corev1.Pod) bool {
			return now.UID == p.UID && container(now) != container(p) && cluster.PodReady(now)
		})
	}
	holds("a", 64, 20000)
	holds("whole", 64, 20000)
	step("rebooted")
	resize(t, c, ns, "a", sized("150m", "300m", "48Mi", "96Mi"))
	same("a", awaitResized(t, c, ns, "a"))
	resizeWhole(t, c, ns, "whole", sized("150m", "300m", "48Mi", "96Mi"))
	same("whole", awaitWhole(t, c, ns, "whole"))
	holds("a", 96, 30000)
	holds("whole", 96, 30000)
	step("resized up")
	v.Run("systemctl daemon-reload") // systemd applies the limits that it has stored
	holds("a", 96, 30000)
	holds("whole", 96, 30000)
	step("reloaded")
	resize(t, c, ns, "a", sized("50m", "100m", "16Mi", "48Mi"))
	v.Run("kill -9 $(systemctl show -P MainPID kubelet)")
	resizeWhole(t, c, ns, "whole", sized("50m", "100m", "16Mi", "48Mi"))
	same("a", awaitResized(t, c, ns, "a"))
	same("whole", awaitWhole(t, c, ns, "whole"))
	holds("a", 48, 10000)
	holds("whole", 48, 10000)

	step("resized down")
	resize(t, c, ns, "a", sized("50m", "100m", "100Ki", "200Ki"))
	c.AwaitPod(t, ns, "a", "not to give memory back that it uses", func(p *corev1.Pod) bool {
		progress := condition(p, corev1.PodResizeInProgress)
		return progress != nil && progress.Reason == corev1.PodReasonError && strings.Contains(progress.Message, "below current usage")
	})
	holds("a", 48, 10000)
	step("refused")
	c.Kubectl(t, "-n", ns, "delete", "pods", "--all", "--timeout=300s")
	for name, p := range before {
		if out, code := v.Try("ls -d " + slice(p)); code == 0 {
			t.Errorf("the cgroup of %s is left: %s", name, out)
		}
	}
}
