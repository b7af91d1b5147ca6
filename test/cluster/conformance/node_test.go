package conformance

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
)

// The default selection of the node suite contains the specs that every node must pass. It excludes specs that cannot pass and make later
// specs fail. Some of these simulate a reboot or delete a sidecar. They stop the kubelet and then call the runtime. On this node the
// runtime is part of the agent, so it stops too. The specs of image garbage collection finally pull all images of the suite, and one of
// these images is available only on the internet.
const (
	nodeFocus = `\[NodeConformance\]`
	nodeSkip  = `\[Flaky\]|\[Disruptive\]|\[FeatureGate|\[Feature:|the node reboot|sidecar container is removed|ImageGarbageCollect`
)

// supervisor is a script that replaces sudo in the node's machine. The suite calls sudo to control the systemd unit of the kubelet. The
// script controls the agent instead. When the suite starts the unit, the script waits until the agent is ready, like systemd for a unit of
// Type=notify. This is necessary because the agent also serves the CRI socket that the suite uses. A configuration that the suite has
// written becomes the agent's configuration.
const supervisor = `#!/bin/sh
end() {
	for pid in $(pidof islet); do kill "$pid"; done
	while pidof islet >/dev/null; do sleep 0.1; done
}
start() {
	if [ -e %[2]s ]; then cp %[2]s %[1]s/kubelet.yaml; fi
	setsid %[1]s/start >>%[1]s/agent.log 2>&1 </dev/null &
	until curl -so /dev/null http://127.0.0.1:10248/healthz; do
		kill -0 $! || exit 1
		sleep 0.1
	done
}
case "$*" in
"systemctl list-units"*) echo kubelet-islet.service ;;
"systemctl reset-failed"*) ;;
"systemctl kill"* | "systemctl stop"*) end ;;
"systemctl start"*) start ;;
"systemctl restart"*) end; start ;;
*) exec "$@" ;;
esac
`

// TestNodeSuite runs Kubernetes' unchanged node end-to-end specs on a node. The specs read files, cgroups and sockets of the machine,
// write static pods and restart the agent.
func TestNodeSuite(t *testing.T) {
	dir := suiteDir(t)
	c := cluster.Start(t)
	n := c.Node(t, "")
	settle(t, n)
	archive, registry := suiteImages(t, dir, images())
	prepareNode(t, n, archive, registry.serve(t, c), "criSocket: /run/islet/cri.sock\n")
	n.Join()
	written := filepath.Join(dir, "kubelet-config")
	must(t, os.RemoveAll(written)) // the file of an earlier run
	n.Write("start", "#!/bin/sh\nexec "+commandLine(t, n)+"\n")
	n.Write("bin/sudo", fmt.Sprintf(supervisor, n.Disk, written))
	n.Run("chmod", "+x", n.Disk+"/start", n.Disk+"/bin/sudo")
	n.Write("system.yaml", "os: Linux\nkernelSpec: {versions: [.+]}\n") // the suite's default requirements concern the machine, not the node

	c.Kubectl(t, "create", "serviceaccount", "suite", "-n", "kube-system")
	c.Kubectl(t, "create", "clusterrolebinding", "suite", "--clusterrole=cluster-admin", "--serviceaccount=kube-system:suite")
	token := strings.TrimSpace(c.Kubectl(t, "create", "token", "suite", "-n", "kube-system", "--duration=12h"))

	focus, skip := cmp.Or(os.Getenv("ISLET_CONFORMANCE_FOCUS"), nodeFocus), cmp.Or(os.Getenv("ISLET_CONFORMANCE_SKIP"), nodeSkip)
	run := n.Command("env", append([]string{"PATH=" + n.Disk + "/bin:" + os.Getenv("PATH"), "HOME=" + n.Disk, "GOPROXY=off", filepath.Join(dir, "ginkgo")}, ginkgo(t, dir, "node", focus, skip)...)...)
	run.Args = append(run.Args, "--focus-file=e2e_node") // the program also contains specs of the other suite
	run.Args = append(run.Args, filepath.Join(dir, "e2e_node.test"), "--", "--host=https://10.97.0.1:6443", "--bearer-token="+token,
		"--node-name="+n.Name,
		"--start-services=false", "--stop-services=false", "--prepull-images=false", "--system-spec-file="+n.Disk+"/system.yaml",
		"--config-dir="+n.Disk+"/conf.d",
		"--kubelet-config-file="+n.Disk+"/kubelet.yaml", "--container-runtime-endpoint=unix:///run/islet/cri.sock", "--dns-domain=cluster.local")
	conclude(t, dir, "node", run)
}

// settle creates the paths and ports that the suite expects on a node.
func settle(t *testing.T, n *cluster.Node) {
	t.Helper()
	n.Run("mkdir", "-p", n.Disk+"/kubelet", n.Disk+"/var-log", "/var/lib/kubelet", "/var/log")
	n.Run("mount", "--bind", n.Disk+"/var-log", "/var/log")
	n.Run("mount", "--bind", n.Disk+"/kubelet", "/var/lib/kubelet")
	n.Edit("kubelet.yaml", func(conf string) string {
		return strings.ReplaceAll(conf, "podLogsDir: "+n.Disk+"/logs", "podLogsDir: /var/log/pods") + "readOnlyPort: 10255\n"
	})
}

// commandLine returns the shell-quoted command line of the node's agent.
func commandLine(t *testing.T, n *cluster.Node) string {
	t.Helper()
	line := strings.TrimSuffix(n.Run("sh", "-c", "cat /proc/$(pidof islet)/cmdline"), "\x00")
	return "'" + strings.ReplaceAll(line, "\x00", "' '") + "'"
}
