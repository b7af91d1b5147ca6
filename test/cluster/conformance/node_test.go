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

// What of the node suite runs where nothing else is asked for: what every node has to pass,
// but for specs that cannot and would have those after them fail too. Those of a node's
// reboot and of a sidecar that is removed stop the kubelet and then ask the runtime, which here has ended with it; those that
// collect images end with pulling all that the suite has, one of them by a digest that only
// the internet has.
const (
	nodeFocus = `\[NodeConformance\]`
	nodeSkip  = `\[Flaky\]|\[Disruptive\]|\[FeatureGate|\[Feature:|the node reboot|sidecar container is removed|ImageGarbageCollect`
)

// supervisor is the sudo of the node's machine, by which the suite asks systemd of the
// kubelet's unit: the agent, here. As with a unit of Type=notify, it has started when it
// is ready: the CRI socket that the suite asks is the agent's, too. A configuration that the
// suite writes, into its own folder, is the agent's from then on.
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

// TestNodeSuite runs Kubernetes' node end-to-end specs, unchanged, on a node: they look at
// files, cgroups and sockets of the machine, write static pods and restart the agent.
func TestNodeSuite(t *testing.T) {
	dir := suiteDir(t)
	c := cluster.Start(t)
	n := c.Node(t, "")
	settle(t, n)
	archive, registry := suiteImages(t, dir, images())
	prepareNode(t, n, archive, registry.serve(t, c), "criSocket: /run/islet/cri.sock\n")
	n.Join()
	written := filepath.Join(dir, "kubelet-config")
	must(t, os.RemoveAll(written)) // of an earlier run
	n.Write("start", "#!/bin/sh\nexec "+commandLine(t, n)+"\n")
	n.Write("bin/sudo", fmt.Sprintf(supervisor, n.Disk, written))
	n.Run("chmod", "+x", n.Disk+"/start", n.Disk+"/bin/sudo")
	n.Write("system.yaml", "os: Linux\nkernelSpec: {versions: [.+]}\n") // what the suite would demand of the machine is not the node's matter

	c.Kubectl(t, "create", "serviceaccount", "suite", "-n", "kube-system")
	c.Kubectl(t, "create", "clusterrolebinding", "suite", "--clusterrole=cluster-admin", "--serviceaccount=kube-system:suite")
	token := strings.TrimSpace(c.Kubectl(t, "create", "token", "suite", "-n", "kube-system", "--duration=12h"))

	focus, skip := cmp.Or(os.Getenv("ISLET_CONFORMANCE_FOCUS"), nodeFocus), cmp.Or(os.Getenv("ISLET_CONFORMANCE_SKIP"), nodeSkip)
	run := n.Command("env", append([]string{"PATH=" + n.Disk + "/bin:" + os.Getenv("PATH"), "HOME=" + n.Disk, "GOPROXY=off", filepath.Join(dir, "ginkgo")}, ginkgo(t, dir, "node", focus, skip)...)...)
	run.Args = append(run.Args, "--focus-file=e2e_node") // it holds specs of the other suite too
	run.Args = append(run.Args, filepath.Join(dir, "e2e_node.test"), "--", "--host=https://10.97.0.1:6443", "--bearer-token="+token,
		"--node-name="+n.Name,
		"--start-services=false", "--stop-services=false", "--prepull-images=false", "--system-spec-file="+n.Disk+"/system.yaml",
		"--config-dir="+n.Disk+"/conf.d",
		"--kubelet-config-file="+n.Disk+"/kubelet.yaml", "--container-runtime-endpoint=unix:///run/islet/cri.sock", "--dns-domain=cluster.local")
	conclude(t, dir, "node", run)
}

// settle gives a node the paths and ports that the suite takes for granted.
func settle(t *testing.T, n *cluster.Node) {
	t.Helper()
	n.Run("mkdir", "-p", n.Disk+"/kubelet", n.Disk+"/var-log", "/var/lib/kubelet", "/var/log")
	n.Run("mount", "--bind", n.Disk+"/var-log", "/var/log")
	n.Run("mount", "--bind", n.Disk+"/kubelet", "/var/lib/kubelet")
	conf, err := os.ReadFile(filepath.Join(n.Disk, "kubelet.yaml"))
	must(t, err)
	n.Write("kubelet.yaml", strings.ReplaceAll(string(conf), "podLogsDir: "+n.Disk+"/logs",
		"podLogsDir: /var/log/pods")+"readOnlyPort: 10255\n")
}

// commandLine is how the node's agent was started.
func commandLine(t *testing.T, n *cluster.Node) string {
	t.Helper()
	line := strings.TrimSuffix(n.Run("sh", "-c", "cat /proc/$(pidof islet)/cmdline"), "\x00")
	return "'" + strings.ReplaceAll(line, "\x00", "' '") + "'"
}
