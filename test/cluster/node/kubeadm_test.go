package node

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// systemctl is a script that replaces the real systemctl, because kubeadm calls systemctl for the units of islet's packages. The script
// sets the environment in the correct order, starts and stops the units, and stops islet-cri.service when kubelet.service starts and vice
// versa.
const systemctl = `#!/bin/bash
unit=${2%.service}
pid=/run/$unit.pid
alive() { readlink "/proc/$(cat "$pid" 2>/dev/null)/exe" >/dev/null; }
case $1 in
start|restart)
	if [ $1 = restart ] || ! alive; then
		"$0" stop "$unit"
		case $unit in
		kubelet)
			"$0" stop islet-cri; file=UNITS/10-kubeadm.conf
			$(sed -n 's/^ExecStartPre=-//p' UNITS/kubelet.service) ;;
		islet-cri) "$0" stop kubelet; file=UNITS/islet-cri.service ;;
		esac
		while IFS= read -r line; do
			case $line in
			Environment=*) e=${line#Environment=\"}; export "${e%\"}" ;;
			EnvironmentFile=-*) [ ! -e "${line#EnvironmentFile=-}" ] || { set -a; . "${line#EnvironmentFile=-}"; set +a; } ;;
			ExecStart=/*) exec=${line#ExecStart=} ;;
			esac
		done <"$file"
		setsid $(eval echo "$exec") </dev/null >>LOG 2>&1 &
		echo $! >"$pid"
		until /usr/local/bin/kubelet pods >/dev/null 2>&1 || ! alive; do sleep 0.1; done # Type=notify
	fi ;;
stop)
	if alive; then
		kill "$(cat "$pid")"
		while alive; do sleep 0.1; done
	fi
	rm -f "$pid" ;;
is-enabled) echo enabled ;;
is-active) alive && echo active ;;
esac
`

// A kubeadmHost is a machine after install.sh --kubeadm.
type kubeadmHost struct {
	*machine.Machine
	addr  string
	extra []string // KUBELET_EXTRA_ARGS
}

func newKubeadmHost(t *testing.T, c *cluster.Cluster) *kubeadmHost {
	m, link := c.Machine(t)
	addr := link.Addr
	m.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: "+m.Disk+"/cni\n")
	m.Boot()
	m.OwnDirs("/etc", "/var/lib", "/usr/local")
	m.Run("mkdir", "-p", "/etc/kubernetes/manifests", "/etc/default", "/var/lib/kubelet", m.Disk+"/kubelet")
	m.Run("mount", "--bind", m.Disk+"/kubelet", "/var/lib/kubelet")
	m.Run("ln", "-sf", m.Binary(), "/usr/local/bin/kubelet")
	m.Run("sysctl", "-q", "-p", machine.Root(t)+"/packaging/kubeadm/islet-sysctl.conf")
	h := &kubeadmHost{m, addr, []string{"--state-dir=" + m.Disk + "/state", "--edge-config=" + m.Disk + "/edge.yaml", "--cgroup-root=" + m.Cgroup, "--node-ip=" + addr,
		"--cgroup-driver=cgroupfs"}} // kubeadm's default is systemd, which the test's host does not have
	h.put("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\""+strings.Join(h.extra, " ")+"\"\n")
	h.put("/etc/hosts", "127.0.0.1 localhost\n"+addr+" "+m.Name+"\n")
	h.put("/usr/local/bin/systemctl", strings.NewReplacer("UNITS", machine.Root(t)+"/packaging/kubeadm", "LOG",
		m.Disk+"/agent.log").Replace(systemctl))
	return h
}

func (h *kubeadmHost) put(path, content string) {
	h.Write("put", content)
	h.Run("install", "-m", "755", filepath.Join(h.Disk, "put"), path)
}

// kubeadm runs kubeadm in the machine. It ignores the preflight check of the kernel and the cgroup hierarchies, because both are those of
// the test's host.
func (h *kubeadmHost) kubeadm(t *testing.T, command []string, args ...string) string {
	t.Helper()
	all := append(append([]string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, command...), args...)
	ignored := "SystemVerification"
	if cluster.IsFormer() {
		ignored += ",KubeletVersion" // kubeadm rejects a kubelet that is newer than its control plane
	}
	out := h.Run("env", append(all, "--ignore-preflight-errors="+ignored)...)
	t.Logf("kubeadm %s:\n%s", command[1], out)
	return out
}

// join follows the steps in docs/kubeadm.md.
func (h *kubeadmHost) join(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h.Run("systemctl", "start", "islet-cri")
	out := h.kubeadm(t, c.JoinCommand(t), "--node-name="+h.Name, "--cri-socket=unix:///run/islet/cri.sock")
	if !strings.Contains(out, "This node has joined the cluster") || strings.Contains(out, "ContainerRuntimeVersion") {
		t.Error("kubeadm join has failed or has printed a warning about the runtime")
	}
	c.AwaitNode(t, h.Name, "to be ready", cluster.NodeReady)
}

// TestKubeadm checks the life of a node under kubeadm with islet as its kubelet: join, upgrade, reset and a second join.
func TestKubeadm(t *testing.T) {
	c := start(t)
	h := newKubeadmHost(t, c)
	h.join(t, c)
	ns := c.Namespace(t)
	pods(t, c, ns, 1)
	config := h.Run("cat", "/var/lib/kubelet/config.yaml")
	for _, want := range []string{"10.96.0.10", "containerRuntimeEndpoint: unix:///run/islet/cri.sock"} {
		if !strings.Contains(config, want) {
			t.Errorf("the node's configuration is not kubeadm's: %q is missing\n%s", want, config)
		}
	}
	if out := h.Run(h.Binary(), "check", "/var/lib/kubelet/config.yaml"); strings.Contains(out, "containerRuntimeEndpoint") {
		t.Errorf("islet serves CRI at the configured endpoint, but islet check says that the field has no effect:\n%s", out)
	}

	kubeadm := c.JoinCommand(t)[:1]
	h.kubeadm(t, append(kubeadm, "upgrade", "node"))
	h.Run("systemctl", "restart", "kubelet")
	c.AwaitNode(t, h.Name, "to be ready after the upgrade", cluster.NodeReady)

	h.Run("systemctl", "stop", "kubelet")
	h.Run(h.Binary(), append([]string{"cleanup", "--config=/var/lib/kubelet/config.yaml"}, h.extra...)...)
	if left := h.ContainerProcesses(); len(left) > 0 {
		t.Errorf("containers run after the cleanup: %v", left)
	}
	h.kubeadm(t, append(kubeadm, "reset", "--force", "--cri-socket=unix:///run/islet/cri.sock"))
	h.Run("sh", "-c", "rm "+h.Disk+"/state/islet.db*")
	if out := h.Run("find", "/etc/kubernetes", "/var/lib/kubelet", "-name", "tmp", "-prune", "-o", "-type", "f", "-print"); out != "" {
		t.Errorf("files are left after kubeadm reset:\n%s", out)
	}

	c.Kubectl(t, "delete", "node", h.Name)
	h.join(t, c)
	c.Apply(t, pod(ns, "again", "", "", "sleep"))
	c.AwaitReady(t, ns, "again")
}
