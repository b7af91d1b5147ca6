package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/vm"
)

// initConfiguration has longer timeouts than kubeadm's default, because the control plane takes minutes to start under emulation. Leader
// election is off, because the default of ten seconds is too short there to renew the lease.
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

// An initBoot is the first node of a new cluster with its control plane, and a second node.
type initBoot struct {
	*kubeadmBoot
	worker *kubeadmBoot
	admin  *machine.Host // the router of their network, on which kubectl runs
	dir    string        // directory of the administrator's files
}

// TestKubeadmBootInit checks that kubeadm creates a cluster of two machines with systemd and cgroup v2, with all preflight checks. The
// control plane runs as static pods. Their images are imported from archives, because there is no registry. Pods must run on both machines
// and be reachable from the API server, also after a reboot of the first machine.
func TestKubeadmBootInit(t *testing.T) {
	requireBoot(t)
	admin, err := machine.BootHost("admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Halt(); err != nil {
			t.Error(err)
		}
	})
	lan := vm.NewLAN(t, admin.Pid())
	version, archives := controlPlaneImages(t)
	files := map[string]string{}
	for name, archive := range archives {
		files["image-"+name] = archive
	}
	name := cluster.Name(t)
	w := bootPackaged(t, name+"-worker", func(v *vm.VM) { v.Cable = lan.Cable(t) }, nil)
	b := initBoot{bootPackaged(t, name, func(v *vm.VM) { v.Cable, v.Memory = lan.Cable(t), 2560 }, files), w, admin, t.TempDir()}
	b.Run("for f in /payload/image-*; do islet images import $f || exit; done")
	b.step("images imported")
	b.Write("/root/init.yaml", fmt.Sprintf(initConfiguration, b.Cable.Address, b.name, version))
	if out := b.kubeadm("init", "--config=/root/init.yaml"); !strings.Contains(out,
		"Your Kubernetes control-plane has initialized successfully!") || strings.Contains(out, "WARNING") {
		t.Error("kubeadm init has failed or has printed a warning")
	}
	b.step("initialized")
	b.put("admin.conf", b.Run("cat /etc/kubernetes/admin.conf"))
	b.controlPlane()
	b.step("the control plane's pods are ready")

	w.enter(strings.Fields(b.Run("/payload/kubeadm token create --print-join-command")))
	b.await("--for=condition=Ready", "node/"+w.name)
	b.step("a second machine joined")
	b.await("--for=create", "serviceaccount/default")
	for pod, node := range map[string]string{"here": b.name, "there": w.name} {
		b.place(pod, node)
	}
	b.await("--for=condition=Ready", "pod/here", "pod/there")
	b.step("pods run on both")
	b.reaches("here")
	b.reaches("there")
	b.step("the API server reaches both")
	there := w.Run(containers)

	b.Reboot()
	b.controlPlane()
	b.Await("pgrep -x podtool")
	b.await("--for=condition=Ready", "node/"+w.name, "pod/here", "pod/there")
	b.reaches("here")
	b.reaches("there")
	if now := w.Run(containers); now != there || now == "" {
		t.Errorf("the reboot of the first machine changed the second one's pods' processes from\n%s to\n%s", there, now)
	}
	b.place("later", w.name)
	b.await("--for=condition=Ready", "pod/later")
	b.reaches("later")
	b.step("the first machine was rebooted, and its control plane works")
}

// put writes a file of the administrator and returns its path.
func (b initBoot) put(name, content string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// place creates a pod on a node. The pod tolerates all taints.
func (b initBoot) place(name, node string) {
	b.t.Helper()
	b.until("apply", "-f", b.put("pod.yaml", pod("default", name,
		"tolerations: [{operator: Exists}]\nnodeSelector: {kubernetes.io/hostname: "+node+"}", "", "count", "1s")))
}

// reaches waits until kubectl exec and kubectl logs work for a pod.
func (b initBoot) reaches(pod string) {
	b.t.Helper()
	if out := b.until("exec", pod, "--", "/podtool", "cat", "/etc/hostname"); out != pod+"\n" {
		b.t.Errorf("kubectl exec returned the host name %q in pod %s", out, pod)
	}
	if out := b.until("logs", pod, "--follow", "--limit-bytes=2"); out != "0\n" {
		b.t.Errorf("the log of %s begins with %q", pod, out)
	}
}

// await repeats kubectl wait until it succeeds.
func (b initBoot) await(args ...string) {
	b.t.Helper()
	b.until(append([]string{"wait", "--timeout=30s"}, args...)...)
}

// until repeats a kubectl command until it succeeds, because the API server may not be ready. It returns the output.
func (b initBoot) until(args ...string) string {
	b.t.Helper()
	all := append([]string{"--kubeconfig=" + filepath.Join(b.dir, "admin.conf")}, args...)
	tick, late := time.NewTicker(time.Second), time.After(patience)
	defer tick.Stop()
	for {
		var told strings.Builder
		c := b.admin.Command(filepath.Join(cluster.Programs(b.t), "kubectl"), all...)
		c.Stderr = &told
		out, err := c.Output()
		if err == nil {
			return string(out)
		}
		select {
		case <-late:
			b.t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, &told)
		case <-tick.C:
		}
	}
}

// patience is the time limit for an emulated control plane to start.
const patience = 20 * time.Minute

// controlPlane waits until the machine's control plane runs in this boot and its pods are ready.
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
