package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cis"
)

// TestBenchmark checks that a fresh installation that kubeadm has joined meets the worker section of the CIS benchmark.
func TestBenchmark(t *testing.T) {
	c := start(t)
	h := newKubeadmHost(t, c)
	settings := h.Run("cat", "/etc/default/kubelet")
	h.Run("rm", "/usr/local/bin/kubelet")
	cis.Install(t, h.Machine, "--kubeadm")
	h.put("/etc/default/kubelet", settings) // the file contains the directories of the test
	h.join(t, c)
	pods(t, c, c.Namespace(t), 1)
	const units = "/etc/systemd/system/"
	n := &cis.Node{
		Root: fmt.Sprintf("/proc/%d/root", h.Pid()), Units: []string{units + "kubelet.service", units + "kubelet.service.d/10-kubeadm.conf", units + "islet-cri.service"},
		Kubeconfig: "/etc/kubernetes/kubelet.conf", ConfigFile: "/var/lib/kubelet/config.yaml",
	}
	for pid, cmd := range h.Processes() {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(cmd, "--bootstrap-kubeconfig=") {
			n.Args = strings.Split(string(b), "\x00")
		}
	}
	if len(n.Args) == 0 {
		t.Fatalf("no agent among %v", h.Processes())
	}
	for pid := range h.ContainerProcesses() {
		n.PodPids = cis.PidsLimit(t, pid, h.Cgroup)
	}
	n.Inspect(t, n.Root+"/run/islet/islet.sock", h.Dial)
	if n.Kubelet.Authentication.X509.ClientCAFile == "" {
		t.Error("4.2.3: the node that joined has no clientCAFile")
	}
	// kubeadm join has written the CA to this file. The configuration of the node contains another path: the CA path of the test's control
	// plane.
	n.Kubelet.Authentication.X509.ClientCAFile = "/etc/kubernetes/pki/ca.crt"
	n.CheckAll(t)
}
