package node

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// TestKubeadmInit checks that kubeadm init creates the first node of a cluster with islet as its kubelet. The control plane runs as static
// pods. Their images are imported from archives, because there is no registry.
func TestKubeadmInit(t *testing.T) {
	c := start(t)
	h := newKubeadmHost(t, c)
	h.Run("systemctl", "start", "islet-cri")
	programs := cluster.Programs(t)
	kubeadm := filepath.Join(programs, "kubeadm")
	version, archives := controlPlaneImages(t)
	for _, archive := range archives {
		h.Islet("images", "import", archive)
	}
	out := h.kubeadm(t, []string{kubeadm, "init"}, "--node-name="+h.Name, "--cri-socket=unix:///run/islet/cri.sock", "--kubernetes-version="+version,
		"--apiserver-advertise-address="+h.addr, "--skip-phases=addon")
	if !strings.Contains(out, "Your Kubernetes control-plane has initialized successfully!") {
		t.Error("kubeadm init has failed")
	}
	kubectl := func(args ...string) string {
		t.Helper()
		return h.Run(filepath.Join(programs, "kubectl"), append([]string{"--kubeconfig=/etc/kubernetes/admin.conf"}, args...)...)
	}
	kubectl("wait", "--timeout=60s", "--for=condition=Ready", "node/"+h.Name)
	for _, part := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		for _, state := range []string{"create", "condition=Ready"} {
			kubectl("-n", "kube-system", "wait", "--timeout=60s", "--for="+state, "pod/"+part+"-"+h.Name)
		}
	}
}

// controlPlaneImages creates an archive for each image that kubeadm requires. It returns the version of the images. It also returns a map
// from the short name of each image to the archive.
func controlPlaneImages(t *testing.T) (version string, archives map[string]string) {
	t.Helper()
	programs, dir := cluster.Programs(t), t.TempDir()
	kubeadm := func(args ...string) string {
		out, err := exec.Command(filepath.Join(programs, "kubeadm"), args...).Output()
		if err != nil {
			t.Fatalf("kubeadm %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	version, archives = kubeadm("version", "-o", "short"), map[string]string{}
	for image := range strings.FieldsSeq(kubeadm("config", "images", "list", "--kubernetes-version="+version)) {
		name, _, _ := strings.Cut(filepath.Base(image), ":")
		program := filepath.Join(programs, name)
		if _, err := exec.LookPath(program); err != nil {
			program = filepath.Join(filepath.Dir(machine.Archive(t)), "podtool") // coredns, pause and others: required by kubeadm, but not run
		}
		archives[name] = filepath.Join(dir, name+".tar")
		pack := exec.Command("go", "run", "./packaging/mkimage", "-ref", image, "-o", archives[name], program)
		pack.Dir = machine.Root(t)
		if out, err := pack.CombinedOutput(); err != nil {
			t.Fatalf("pack %s: %v\n%s", image, err, out)
		}
	}
	return version, archives
}
