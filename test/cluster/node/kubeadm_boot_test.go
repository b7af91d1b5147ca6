package node

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/vm"
	corev1 "k8s.io/api/core/v1"
)

// cri is kubeadm's flag for the CRI socket.
const cri = "--cri-socket=unix:///run/islet/cri.sock"

// A kubeadmBoot is a virtual machine with islet's Debian packages that kubeadm joins to the cluster. It runs systemd with cgroup v2 and
// has no replaced programs.
type kubeadmBoot struct {
	*vm.VM
	t    *testing.T
	c    *cluster.Cluster       // nil for the first node of a new cluster
	name string                 // of the node
	pods map[string]*corev1.Pod // running pods with their last known status
	step func(what string)      // logs a step with its time
}

func requireBoot(t *testing.T) {
	t.Helper()
	if os.Getenv("ISLET_VM_KUBEADM") == "" {
		t.Skip("a whole machine's life takes half an hour: make test-kubeadm")
	}
}

// newKubeadmBoot boots a machine that reaches the test's control plane.
func newKubeadmBoot(t *testing.T) *kubeadmBoot {
	t.Helper()
	requireBoot(t)
	c := start(t)
	t.Cleanup(func() { c.Kubectl(t, "delete", "node", cluster.Name(t), "--ignore-not-found") }) // runs after the machine is off
	cable := vm.NATCable(c.Guest(t))
	b := bootPackaged(t, cluster.Name(t), func(v *vm.VM) { v.Cable = cable }, nil)
	b.c = c
	return b
}

// bootPackaged boots a machine and installs the packages of this version. The given function configures the machine before the boot. The
// map contains additional files of /payload. The given name becomes the name of the Node.
func bootPackaged(t *testing.T, name string, set func(*vm.VM), further map[string]string) *kubeadmBoot {
	t.Helper()
	files := map[string]string{"podtool.tar": machine.Archive(t), "kubeadm": filepath.Join(cluster.Programs(t), "kubeadm")}
	maps.Copy(files, further)
	for variable, suffix := range map[string]string{"ISLET_PACKAGES": ".deb", "ISLET_PACKAGES_NEXT": "-next.deb"} {
		for _, p := range []string{"islet", "islet-cni", "islet-kubelet"} {
			found, err := filepath.Glob(filepath.Join(os.Getenv(variable), p+"_*_amd64.deb"))
			if err != nil || len(found) != 1 {
				t.Fatalf("%s has not one package %s: %v %v", variable, p, found, err)
			}
			files[p+suffix] = found[0]
		}
	}
	began := time.Now()
	b := &kubeadmBoot{VM: vm.New(t, filepath.Join(machine.Root(t), ".cache"), files), t: t, name: name, pods: map[string]*corev1.Pod{},
		step: func(what string) { t.Logf("%4.0fs %s: %s", time.Since(began).Seconds(), name, what) }}
	b.Diagnose = "date; islet status; islet pods -A -o wide; systemctl --no-pager --failed; journalctl -u kubelet -u islet-cri -b --no-pager -o short-monotonic | tail -80"
	set(b.VM)
	b.Boot()
	b.Write("/etc/systemd/network/lan.network", "[Match]\nDriver=virtio_net\n[Network]\nAddress="+b.Cable.Address+"/24\nGateway="+
		b.Cable.Router+"\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n")
	b.Write("/etc/hosts", "127.0.0.1 localhost edge\n"+b.Cable.Address+" "+name+"\n")
	b.Run("systemctl -q mask systemd-networkd-wait-online.service && systemctl -q enable --now systemd-networkd.service && udevadm trigger --subsystem-match=net")
	b.Await("ip route | grep -q ^default")
	b.Run("mkdir -p /var/lib/islet/images && cp /payload/podtool.tar /var/lib/islet/images/")
	b.step("booted")
	b.Run("dpkg -i /payload/islet.deb /payload/islet-cni.deb /payload/islet-kubelet.deb")
	b.Run("cat /payload/kubeadm $(readlink -f /usr/bin/kubelet) >/dev/null") // fills the page cache, because kubeadm waits only 2 s
	b.step("installed")
	return b
}

// kubeadm runs kubeadm without ignored preflight errors. kubeadm waits two seconds for the runtime, which is too short for an emulated
// machine on a busy host. In this case the command is repeated, because the preflight checks change nothing.
func (b *kubeadmBoot) kubeadm(args ...string) string {
	b.t.Helper()
	for again := 3; ; again-- {
		out, code := b.Try("/payload/kubeadm " + strings.Join(args, " "))
		b.t.Logf("kubeadm %s:\n%s", args[0], out)
		if code == 0 {
			return out
		}
		if late := strings.Contains(out, "[ERROR CRI]") && strings.Contains(out, "DeadlineExceeded"); !late || again == 0 {
			b.t.Fatalf("kubeadm %s: exit code %d", args[0], code)
		}
	}
}

// enter joins a cluster with kubeadm's join command, and checks that kubeadm prints no warning.
func (b *kubeadmBoot) enter(command []string) {
	b.t.Helper()
	out := b.kubeadm(append(command[1:], "--node-name="+b.name, cri)...)
	if !strings.Contains(out, "This node has joined the cluster") || strings.Contains(out, "WARNING") {
		b.t.Error("kubeadm join has failed or has printed a warning")
	}
}

// join joins the test's cluster. It first sets the cgroup driver in the cluster's kubelet configuration.
func (b *kubeadmBoot) join(driver string) {
	b.t.Helper()
	kubectl := func(args ...string) string {
		return b.c.Kubectl(b.t, append([]string{"-n", "kube-system"}, args...)...)
	}
	config := kubectl("get", "configmap", "kubelet-config", "-o", "jsonpath={.data.kubelet}")
	lines := slices.DeleteFunc(strings.Split(config, "\n"), func(line string) bool { return strings.HasPrefix(line, "cgroupDriver:") })
	kubectl("create", "configmap", "kubelet-config.next", "--from-literal=kubelet="+strings.Join(append(lines, "cgroupDriver: "+driver), "\n"))
	next := kubectl("get", "configmap", "kubelet-config.next", "-o", "jsonpath={.data}")
	kubectl("patch", "configmap", "kubelet-config", "-p", `{"data":`+next+`}`)
	kubectl("delete", "configmap", "kubelet-config.next")
	b.enter(b.c.JoinCommand(b.t))
	b.c.AwaitNode(b.t, b.name, "to be ready", cluster.NodeReady)
	if out := b.Run("cat /var/lib/kubelet/config.yaml; islet status"); !strings.Contains(out, "cgroupDriver: "+driver) {
		b.t.Errorf("the node's configuration is not the cluster's:\n%s", out)
	}
	b.step("joined, with " + driver)
}

// settled returns a pod that mounts a ConfigMap of the cluster and tolerates all taints.
func settled(ns, name string) string {
	return pod(ns, name, "tolerations: [{operator: Exists}]\nvolumes: [{name: settings, configMap: {name: settings}}]",
		"volumeMounts: [{name: settings, mountPath: /settings}]", "sleep")
}

// run creates pods on the machine and waits until they are ready.
func (b *kubeadmBoot) run(ns string, names ...string) {
	b.t.Helper()
	var all strings.Builder
	for _, name := range names {
		all.WriteString(settled(ns, name))
	}
	b.c.Apply(b.t, all.String())
	b.alive(len(b.pods) + len(names))
	for name, p := range b.c.AwaitReady(b.t, ns, names...) {
		b.pods[name] = p
	}
}

// alive waits until the given number of container processes run in this boot. For a moment, the status of pods may be that of the previous
// boot.
func (b *kubeadmBoot) alive(n int) {
	b.t.Helper()
	b.Await(fmt.Sprintf("[ $(pgrep -x podtool | wc -l) = %d ] || { islet pods -A; false; }", n))
}

// back waits until the pods are ready in new containers after a boot.
func (b *kubeadmBoot) back() {
	b.t.Helper()
	b.alive(len(b.pods))
	for name, old := range b.pods {
		b.pods[name] = b.c.AwaitPod(b.t, old.Namespace, name, "to be ready in a new container", func(p *corev1.Pod) bool {
			return p.UID == old.UID && container(p) != container(old) && cluster.PodReady(p)
		})
		if out := b.Run("islet exec -n " + old.Namespace + " " + name + " -- /podtool cat /settings/greeting"); !strings.HasPrefix(out,
			"good morning") {
			b.t.Errorf("%s does not have the cluster's ConfigMap: %q", name, out)
		}
	}
}

// same checks that the pods' processes have not changed, and that the API server shows the same containers.
func (b *kubeadmBoot) same(before, what string) {
	b.t.Helper()
	if after := b.Run(containers); after != before || before == "" {
		b.t.Errorf("%s changed the pods' processes from\n%s to\n%s", what, before, after)
	}
	for name, old := range b.pods {
		b.c.AwaitPod(b.t, old.Namespace, name, "to be ready in the same container", func(p *corev1.Pod) bool {
			return p.UID == old.UID && container(p) == container(old) && cluster.PodReady(p)
		})
	}
}

// containers is a command that prints the processes of pods from their cgroups.
const containers = `find /sys/fs/cgroup/kubepods* -name cgroup.procs -exec cat {} + | sort -n`

// TestKubeadmBoot checks the whole life of a machine that kubeadm joins. The steps are a join without preflight errors, a reboot, an
// upgrade of the packages while pods run, kubeadm upgrade node, power cuts, a boot with a wrong clock, a reset, and a join with the other
// cgroup driver. ISLET_VM_CUTS is the number of power cuts. The default is 3.
func TestKubeadmBoot(t *testing.T) {
	b := newKubeadmBoot(t)
	b.join("systemd")
	ns := b.c.Namespace(t)
	b.c.Kubectl(t, "-n", ns, "create", "configmap", "settings", "--from-literal=greeting=good morning")
	b.run(ns, "p0", "p1")
	b.Run("find /sys/fs/cgroup/kubepods.slice -path '*.slice/islet-*.scope/*' -name cgroup.procs -exec cat {} + | grep .")
	b.step("pods run")
	b.Reboot()
	b.back()
	b.step("rebooted")

	before := b.Run(containers)
	b.Run("old=$(systemctl show -P MainPID kubelet) && dpkg -i /payload/islet-next.deb /payload/islet-cni-next.deb /payload/islet-kubelet-next.deb && dpkg-query -W islet | grep next && [ $old != $(systemctl show -P MainPID kubelet) ]")
	b.Await("islet pods -A")
	b.same(before, "an upgrade of the packages")
	b.step("packages upgraded")
	b.kubeadm("upgrade", "node")
	b.Run("systemctl restart kubelet")
	b.c.AwaitNode(t, b.name, "to be ready after the upgrade", cluster.NodeReady)
	b.same(before, "kubeadm upgrade node")
	b.step("kubeadm upgrade node")

	b.cuts(ns)
	b.longPast(ns)
	b.reset()
	b.c.Kubectl(t, "delete", "node", b.name)
	b.c.Kubectl(t, "-n", ns, "delete", "pods", "--all", "--force") // normally a drain would delete the pods before the reset
	b.Run("systemctl start islet-cri")
	b.join("cgroupfs")
	b.run(ns, "again")
	b.Run("find /sys/fs/cgroup/kubepods -name cgroup.procs -exec cat {} + | grep .")
	b.step("pods run again")
}

// cuts interrupts the power at random moments, while pods run, start and end.
func (b *kubeadmBoot) cuts(ns string) {
	b.t.Helper()
	n := 3
	if s := os.Getenv("ISLET_VM_CUTS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.t.Fatal(err)
		}
	}
	began := time.Now()
	for i := range n {
		what, name := "pods rest", fmt.Sprint("p", i+2)
		switch i % 3 {
		case 0:
			what = "a pod comes"
			b.c.Apply(b.t, settled(ns, name))
			b.pods[name] = b.c.AwaitPod(b.t, ns, name, "to be there", func(*corev1.Pod) bool { return true })
		case 1:
			what, name = "a pod goes", fmt.Sprint("p", i+1)
			b.c.Kubectl(b.t, "-n", ns, "delete", "pod", name, "--wait=false")
			defer b.c.AwaitGone(b.t, b.pods[name])
			delete(b.pods, name)
		}
		moment := rand.N(10 * time.Second)
		cluster.Pass(moment)
		b.PowerCut()
		b.Boot()
		b.back()
		b.step(fmt.Sprintf("power cut %d, %v after the moment when %s", i+1, moment.Round(time.Millisecond), what))
	}
	b.t.Logf("%d power cuts survived in %v", n, time.Since(began).Round(time.Second))
}

// longPast boots with a clock that is months or years slow, like a board without a battery, so that no certificate is valid yet. The stored
// pods must run again. The node must reconnect, because it derives a later time from the API server's responses. Nothing may restart when
// the clock is set.
func (b *kubeadmBoot) longPast(ns string) {
	b.t.Helper()
	b.Clock = "1970-01-01"
	b.Reboot()
	b.Clock = ""
	now, err := strconv.ParseInt(strings.TrimSpace(b.Run("date +%s")), 10, 64)
	if month := int64(30 * 24 * 3600); err != nil || now > time.Now().Unix()-month {
		b.t.Errorf("the machine has the correct time: %d, %v", now, err)
	}
	b.back()
	b.step("pods run, " + time.Unix(now, 0).Format(time.DateOnly))
	agent, before := b.Run("systemctl show -P MainPID kubelet"), b.Run(containers)
	b.Run(fmt.Sprintf("date -s @%d", time.Now().Unix()))
	b.same(before, "the step of the clock")
	b.run(ns, "timely")
	if now := b.Run("systemctl show -P MainPID kubelet"); now != agent {
		b.t.Errorf("the agent was restarted: process %s is now %s", agent, now)
	}
	b.step("the time is known, and a new pod runs")
}

// reset removes the machine from the cluster as docs/kubeadm.md describes, and checks that no resources of pods and of the cluster are
// left.
func (b *kubeadmBoot) reset() {
	b.t.Helper()
	b.Run("systemctl stop kubelet && islet cleanup --config=/var/lib/kubelet/config.yaml")
	b.kubeadm("reset", "--force", cri)
	b.Run("rm -f /var/lib/islet/islet.db*")
	for what, command := range map[string]string{
		"processes": "pgrep -x podtool; pgrep -l shim; pgrep -x kubelet",
		"cgroups":   "find /sys/fs/cgroup -type d -name '*pod*-*'",
		"mounts":    "grep -E ' /(var/lib|run)/(kubelet|islet|netns)' /proc/self/mountinfo",
		"links":     "ip -o link | grep -v -e ' lo: ' -e ' e[nt][^:]*: '",
		"files":     "find /etc/kubernetes /var/lib/kubelet -name tmp -prune -o -type f -print",
	} {
		if out, _ := b.Try(command); strings.TrimSpace(out) != "" {
			b.t.Errorf("%s are left after kubeadm reset:\n%s", what, out)
		}
	}
	clear(b.pods)
	b.step("reset")
}
