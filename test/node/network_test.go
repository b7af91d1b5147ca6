package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// addOn returns the static pod of a network add-on that works like flannel's DaemonSet.
func addOn(m *machine.Machine) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: flannel}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: %s
    imagePullPolicy: Never
    args: [flannel, %[2]s/cni, 10.42.0.0/24]
    volumeMounts: [{name: cni, mountPath: %[2]s/cni}, {name: run, mountPath: /run/flannel},
      {name: netns, mountPath: /var/run/netns, mountPropagation: HostToContainer}]
  volumes:
  - {name: cni, hostPath: {path: %[2]s/cni}}
  - {name: run, hostPath: {path: /run/flannel, type: DirectoryOrCreate}}
  - {name: netns, hostPath: {path: /var/run/netns, type: DirectoryOrCreate}}
`, machine.Image, m.Disk)
}

// installPlugin copies the add-on's CNI plugin into the node's plugin directory.
func installPlugin(t *testing.T, m *machine.Machine) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(machine.Archive(t)), "podtool"))
	if err != nil {
		t.Fatal(err)
	}
	m.Write("bin/flannel", string(b))
	if err := os.Chmod(m.Disk+"/bin/flannel", 0o755); err != nil {
		t.Fatal(err)
	}
}

// onAddOn checks that the pods use the add-on's network and that the built-in network is removed.
func onAddOn(t *testing.T, m *machine.Machine, pods map[string]machine.Pod) {
	t.Helper()
	links := m.Links()
	if slices.Contains(links, "islet0") || !slices.Contains(links, "cni0") {
		t.Errorf("interfaces are %q", links)
	}
	if tables := m.Run("nft", "list", "tables"); strings.Contains(tables, "table ip islet\n") {
		t.Errorf("nftables: %s", tables)
	}
	if got := m.Islet("exec", "app-edge", "--", "/podtool", "get", "http://"+pods["web-edge"].Status.PodIP); got != "web-edge\n" {
		t.Errorf("from pod to pod: %q", got)
	}
	// The daemons of other add-ons open the network namespaces of pods, which are created after the add-on's container.
	mounts := m.Islet("exec", "flannel-edge", "--", "/podtool", "cat", "/proc/self/mountinfo")
	seen := map[string]bool{} // a name may be mounted twice, as after ip netns
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], "/var/run/netns/islet-") && strings.HasPrefix(f[3], "net:") {
			seen[f[4]] = true
		}
	}
	if len(seen) != len(pods)-1 {
		t.Errorf("the add-on sees %d network namespaces, want %d:\n%s", len(seen), len(pods)-1, mounts)
	}
}

// bootWithPlugin returns a machine that is on, with the add-on's plugin. The lines are added to its EdgeConfiguration.
func bootWithPlugin(t *testing.T, lines string) *machine.Machine {
	t.Helper()
	m := machine.New(t, "edge")
	m.InstallImage()
	installPlugin(t, m)
	m.Boot()
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %[1]s/cni\n"+
		"cniBinDirs: [%[1]s/bin]\n", m.Disk)+lines)
	return m
}

// TestAddOnTakesOver checks that a network add-on replaces the built-in network of running pods. After a reboot, the pod of the add-on
// must start before the other pods. The node must keep the add-on's network when the CNI configuration of the add-on is deleted.
func TestAddOnTakesOver(t *testing.T) {
	t.Parallel()
	m := bootWithPlugin(t, "")
	m.StartAgent()
	if links := m.Links(); len(links) > 0 {
		t.Errorf("interfaces before the first pod: %q", links)
	}
	m.Write("manifests/web.yaml", manifest("web", "", "serve", ":80"))
	m.Write("manifests/app.yaml", manifest("app", "", "count", "1s"))
	before := containers(m.WaitReady("app-edge", "web-edge"))
	if links := m.Links(); !slices.Contains(links, "islet0") {
		t.Errorf("interfaces are %q", links)
	}
	m.Write("manifests/flannel.yaml", addOn(m))
	all := []string{"app-edge", "flannel-edge", "web-edge"}
	pods := m.WaitPods("the pods to move", func(pods map[string]machine.Pod) bool { return changed(before, pods) == 2 && areReady(pods, all) })
	onAddOn(t, m, pods)
	for name, p := range pods {
		want := 1
		if name == "flannel-edge" {
			want = 0
		}
		if got := p.Status.ContainerStatuses[0].RestartCount; got != want {
			t.Errorf("%s was restarted %d times", name, got)
		}
	}
	conflist, err := os.ReadFile(m.Disk + "/cni/10-flannel.conflist")
	if err != nil {
		t.Fatal(err)
	}

	before = containers(pods)
	m.PowerOff()
	m.Boot()
	m.StartAgent()
	pods = m.WaitPods("every pod to run again", func(pods map[string]machine.Pod) bool {
		return changed(before, pods) == 3 &&
			areReady(pods, all)
	})
	onAddOn(t, m, pods)
	if after, err := os.ReadFile(m.Disk + "/cni/10-flannel.conflist"); err != nil || string(after) != string(conflist) {
		t.Errorf("the add-on's file is %s (%v)", after, err)
	}

	before = containers(pods)
	m.Remove("cni/10-flannel.conflist")
	m.Write("manifests/late.yaml", manifest("late", "", "count", "1s"))
	all = append(all, "late-edge")
	slices.Sort(all)
	pods = m.WaitReady(all...)
	if n := changed(before, pods); n > 0 {
		t.Errorf("%d pods were replaced when the file was deleted", n)
	}
	if out, code := m.Try("status"); code == 0 || !strings.Contains(out, "10-flannel.conflist was removed") {
		t.Errorf("status does not report the deleted file: code %d\n%s", code, out)
	}
	for _, name := range []string{"web", "app", "late", "flannel"} {
		m.Remove("manifests/" + name + ".yaml")
	}
	m.WaitReady()
	for _, l := range m.Links() {
		if l != "cni0" {
			t.Errorf("interface %s is left", l)
		}
	}
	m.Stop()
	inventory(t, m)
}

// TestNetworkOfAddOnsOnly checks that pods of a node with networkPlugin cni wait for the network add-on.
func TestNetworkOfAddOnsOnly(t *testing.T) {
	t.Parallel()
	m := bootWithPlugin(t, "networkPlugin: cni\n")
	m.Write("manifests/web.yaml", manifest("web", "", "serve", ":80"))
	m.Write("manifests/app.yaml", manifest("app", "", "count", "1s"))
	m.StartAgent()
	const why = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
	m.Await("the pods to report the reason", func() bool { return strings.Contains(m.Islet("describe", "web-edge"), why) })
	if out, code := m.Try("status"); code == 0 || !strings.Contains(out, "cni plugin not initialized") {
		t.Errorf("status: code %d\n%s", code, out)
	}
	m.Write("manifests/flannel.yaml", addOn(m))
	onAddOn(t, m, m.WaitReady("app-edge", "flannel-edge", "web-edge"))
}

// TestFormerNode checks that islet doctor removes the bridge of a former node whose address is in the range of the pods.
func TestFormerNode(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Run("ip", "link", "add", "cni0", "type", "bridge")
	m.Run("ip", "address", "add", "10.42.0.1/24", "dev", "cni0")
	m.Write("manifests/web.yaml", manifest("web", "", "serve", ":80"))
	m.StartAgent()
	m.Await("the pod to report the address conflict", func() bool {
		out := m.Islet("describe", "web-edge")
		return strings.Contains(out, "interface cni0 has the address 10.42.0.1") && strings.Contains(out, "islet doctor --fix")
	})
	settings := "--edge-config=" + m.Disk + "/edge.yaml"
	if out, code := m.Try("doctor", "--dry-run", settings); code == 0 || !strings.Contains(out, "would remove interface cni0") ||
		!slices.Contains(m.Links(), "cni0") {
		t.Errorf("dry run: code %d\n%s", code, out)
	}
	out, _ := m.Try("doctor", "--fix", settings)
	if slices.Contains(m.Links(), "cni0") {
		t.Errorf("cni0 is still there:\n%s", out)
	}
	m.WaitReady("web-edge")
}

// TestNetworkComesLater checks that pods which started before the machine had a network get the address and the DNS servers as soon as the
// machine has them, and again after each change. A pod with an environment variable for the host's address waits for the address. Other
// pods start without an address.
func TestNetworkComesLater(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("resolv.conf", "")
	m.Write("kubelet.yaml", m.Kubelet(machine.Roomy+fmt.Sprintf("resolvConf: %s/resolv.conf\n", m.Disk)))
	const probed = "    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}\n  hostNetwork: true\n"
	m.Write("manifests/host.yaml", manifest("host", probed, "serve", ":8080"))
	m.Write("manifests/app.yaml", manifest("app", "", "count", "1s"))
	m.Write("manifests/asks.yaml", manifest("asks",
		"    env:\n    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}\n", "count", "1s"))
	m.StartAgent()
	pods := m.WaitPods("the pods that need no address to be ready", func(pods map[string]machine.Pod) bool {
		return pods["host-edge"].Ready() && pods["app-edge"].Ready()
	})
	if ip := pods["host-edge"].Status.PodIP; ip != "" || pods["asks-edge"].Ready() {
		t.Errorf("the machine has the address %q, or a pod starts without it", ip)
	}
	m.Await("the pod to wait for an address", func() bool {
		return strings.Contains(m.Islet("describe", "asks-edge"), "host IP unknown")
	})
	resolv := func(pod string) string { return m.Islet("exec", pod, "--", "/podtool", "cat", "/etc/resolv.conf") }
	if got := resolv("app-edge"); got != "" {
		t.Errorf("resolv.conf is %q", got)
	}

	before := containers(pods)
	m.Write("resolv.conf", "nameserver 192.0.2.53\n")
	for _, pod := range []string{"app-edge", "host-edge"} {
		m.Await("the DNS server to come", func() bool { return resolv(pod) == "nameserver 192.0.2.53\n" })
	}
	m.Run("ip", "link", "add", "wan0", "type", "veth", "peer", "wan1")
	m.Run("ip", "link", "set", "wan0", "up")
	m.Run("ip", "link", "set", "wan1", "up")
	m.Run("ip", "address", "add", "192.0.2.7/24", "dev", "wan0")
	hasAddress := func(ip string) func(map[string]machine.Pod) bool {
		return func(pods map[string]machine.Pod) bool {
			return areReady(pods, []string{"app-edge", "asks-edge", "host-edge"}) && pods["host-edge"].Status.PodIP == ip
		}
	}
	m.WaitPods("the address to come", hasAddress("192.0.2.7"))
	environment := func() string { return m.Islet("exec", "asks-edge", "--", "/podtool", "cat", "/proc/1/environ") }
	if got := environment(); !strings.Contains(got, "HOST_IP=192.0.2.7\x00") {
		t.Errorf("the environment is %q", got)
	}
	m.Run("ip", "address", "del", "192.0.2.7/24", "dev", "wan0")
	m.Run("ip", "address", "add", "192.0.2.8/24", "dev", "wan0")
	pods = m.WaitPods("the address to change", hasAddress("192.0.2.8"))
	if n := changed(before, pods); n > 1 { // the pod that waited is new
		t.Errorf("%d pods were replaced", n)
	}

	// A network beside the bridge leaves the node Ready, unless it may have cut off the machine.
	m.Run("ip", "route", "add", "default", "via", "192.0.2.254")
	m.Run("ip", "address", "add", "10.42.0.58/24", "dev", "wan1")
	m.Await("the network beside the bridge to be reported", func() bool {
		out, _ := m.Try("status")
		_, attention, _ := strings.Cut(out, "Needs attention:")
		return strings.Contains(attention, "interface wan1 has the address 10.42.0.58/24") && !strings.Contains(out, "NOT READY")
	})
	m.Run("ip", "address", "del", "10.42.0.58/24", "dev", "wan1")
	m.Await("the network beside the bridge to end", func() bool { return machine.IsWell(m.Try("status")) })
	m.Run("ip", "route", "del", "default")

	m.Run("ip", "address", "add", "10.42.0.57/24", "dev", "wan0")
	const why = "interface wan0 has the address 10.42.0.57/24, in the pods' network 10.42.0.0/24"
	m.Await("the conflict to be reported", func() bool {
		out, code := m.Try("status")
		return code != 0 && strings.Contains(out, why) && strings.Contains(out, "NOT READY")
	})
	m.Run("ip", "address", "del", "10.42.0.57/24", "dev", "wan0")
	m.Await("the conflict to end", func() bool { return machine.IsWell(m.Try("status")) })

	m.PowerOff()
	m.Boot() // without the network
	m.StartAgent()
	m.WaitReady("app-edge", "asks-edge", "host-edge")
	if got := environment(); !strings.Contains(got, "HOST_IP=192.0.2.8\x00") {
		t.Errorf("without a network, the environment is %q", got)
	}
}
