package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/vm"
)

// initConfiguration has kubeadm wait longer than it does by itself: the control plane's
// programs take minutes to start under emulation. Nothing else wants to lead, and the ten
// seconds in which a leader is to renew its lease are too few there.
const initConfiguration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %s}
nodeRegistration: {name: %s, criSocket: "unix:///run/islet/cri.sock"}
skipPhases: [addon]
timeouts: {controlPlaneComponentHealthCheck: 20m, kubeletHealthCheck: 10m, kubernetesAPICall: 10m, tlsBootstrap: 10m, discovery: 10m}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
networking: {podSubnet: 10.244.0.0/16}
controllerManager: {extraArgs: [{name: leader-elect, value: "false"}]}
scheduler: {extraArgs: [{name: leader-elect, value: "false"}]}
`

// worker is the address of the second machine, in whose network the first one is.
const worker = "10.97.0.2"

// An initBoot is a machine with a control plane of its own, and a second node of it.
type initBoot struct {
	*kubeadmBoot
	worker *kubeadmHost
}

// TestKubeadmBootInit: the first node of a cluster on a machine of its own, with systemd and
// cgroup v2 and no check left out. Its control plane is static pods, of images that are
// brought as archives since there is no registry. A second machine joins, pods run on both,
// and after a reboot of the first one all of it is there again.
func TestKubeadmBootInit(t *testing.T) {
	requireBoot(t)
	h := bootKubeadmHost(t, machine.New(t, "worker"), worker)
	for _, line := range []string{"link add eth0 type bridge", "addr add " + worker + "/24 dev eth0", "link set eth0 up", "route add default dev eth0", "route add local " + vm.Address + " dev lo src " + worker} {
		h.Run("ip", strings.Fields(line)...)
	}
	version, archives := controlPlaneImages(t)
	files := map[string]string{}
	for name, archive := range archives {
		files["image-"+name] = archive
	}
	b := initBoot{bootPackaged(t, func(v *vm.VM) { v.Network, v.Serves, v.Memory = h.Pid(), 6443, 2560 }, files), h}
	b.Run("for f in /payload/image-*; do islet images import $f || exit; done")
	b.step("images imported")
	b.Write("/root/init.yaml", fmt.Sprintf(initConfiguration, vm.Address, b.name, version))
	if out := b.kubeadm("init", "--config=/root/init.yaml"); !strings.Contains(out, "Your Kubernetes control-plane has initialized successfully!") || strings.Contains(out, "WARNING") {
		t.Error("kubeadm does not say that the control plane runs, or something does not please it")
	}
	b.step("initialized")
	h.put("/etc/admin.conf", b.Run("cat /etc/kubernetes/admin.conf"))
	b.controlPlane()
	b.step("the control plane's pods are ready")

	command := strings.Fields(b.Run("/payload/kubeadm token create --print-join-command"))
	h.Run("systemctl", "start", "islet-cri")
	command[0] = filepath.Join(cluster.Programs(t), "kubeadm")
	if out := h.kubeadm(t, command, "--node-name="+h.Name, cri); !strings.Contains(out, "This node has joined the cluster") {
		t.Error("kubeadm does not say that the node has joined")
	}
	b.await("--for=condition=Ready", "node/"+h.Name)
	b.step("a second machine joined")
	b.await("--for=create", "serviceaccount/default")
	for pod, node := range map[string]string{"here": b.name, "there": h.Name} {
		b.place(pod, node)
	}
	b.await("--for=condition=Ready", "pod/here", "pod/there")
	b.step("pods run on both")
	there := b.kubectl("get", "pod", "there", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	b.reaches("here")
	b.reaches("there")

	b.Reboot()
	b.controlPlane()
	b.Await("pgrep -x podtool")
	b.await("--for=condition=Ready", "node/"+h.Name, "pod/here", "pod/there")
	b.reaches("here")
	if now := b.kubectl("get", "pod", "there", "-o", "jsonpath={.status.containerStatuses[0].containerID}"); now != there || now == "" {
		t.Errorf("the second machine's pod has another container than before: %q, not %q", now, there)
	}
	b.place("later", h.Name)
	b.await("--for=condition=Ready", "pod/later")
	b.reaches("later")
	b.step("the first machine was rebooted, and its control plane works")
}

// place makes a pod that runs on a node, chosen by its label, and that no taint drives away.
func (b initBoot) place(name, node string) {
	b.t.Helper()
	b.worker.Write("pod.yaml", pod("default", name, "tolerations: [{operator: Exists}]\nnodeSelector: {kubernetes.io/hostname: "+node+"}", "", "sleep"))
	b.kubectl("apply", "-f", filepath.Join(b.worker.Disk, "pod.yaml"))
}

// reaches waits until the API server reaches a pod by its kubelet.
func (b initBoot) reaches(pod string) {
	b.t.Helper()
	b.until("exec", pod, "--", "/podtool", "ls", "/")
}

// kubectl is an administrator's, on the second machine.
func (b initBoot) kubectl(args ...string) string {
	b.t.Helper()
	return b.worker.Run(filepath.Join(cluster.Programs(b.t), "kubectl"), append([]string{"--kubeconfig=/etc/admin.conf"}, args...)...)
}

// await is until with kubectl wait.
func (b initBoot) await(args ...string) {
	b.t.Helper()
	b.until(append([]string{"wait", "--timeout=30s"}, args...)...)
}

// until runs kubectl until it succeeds: an API server may not be there yet.
func (b initBoot) until(args ...string) {
	b.t.Helper()
	all := append([]string{"--kubeconfig=/etc/admin.conf"}, args...)
	tick, late := time.NewTicker(time.Second), time.After(patience)
	defer tick.Stop()
	for {
		out, err := b.worker.Command(filepath.Join(cluster.Programs(b.t), "kubectl"), all...).CombinedOutput()
		if err == nil {
			return
		}
		select {
		case <-late:
			b.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		case <-tick.C:
		}
	}
}

// patience with an emulated control plane that comes up.
const patience = 20 * time.Minute

// controlPlane waits until the machine's control plane runs in this boot, and shows its pods
// ready.
func (b initBoot) controlPlane() {
	b.t.Helper()
	parts := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	for _, part := range parts {
		b.Await("pgrep -x '" + part[:min(len(part), 15)] + "'")
	}
	b.await("--for=condition=Ready", "node/"+b.name)
	for _, part := range parts {
		b.await("-n=kube-system", "--for=create", "pod/"+part+"-"+b.name)
		b.await("-n=kube-system", "--for=condition=Ready", "pod/"+part+"-"+b.name)
	}
}
