package node

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// notDone contains patterns of metrics that are missing in TestFiguresOfWork, with the object or event that they would need. A pattern
// matches the whole name.
var notDone = map[string]string{
	`dra_(grpc_)?operations_duration_seconds`: "a resource claim",
	`kubelet_device_plugin_.*`:                "a device plugin",
	`kubelet_credential_provider_.*`:          "a plugin for passwords of registries",
	`kubelet_podcertificate_states`:           "a pod that wants a certificate",
	`kubelet_node_config_.*|islet_configuration_(trials|result)|islet_update_(trials|result|rollout)|islet_bundle_.*`: "a configuration, a version or a bundle that it was sent",
	`kubelet_eviction_stats_age_seconds|kubelet_preemptions`:                                                          "a node that is full",
	`kubelet_image_garbage_collected_total`:                                                                           "an image that nobody needs, and a full disk",
	`kubelet_container_aligned_compute_resources_failure_count`:                                                       "CPUs that are on no one NUMA node",
	`kubelet_pod_deferred_(accepted_resizes_total|resize_duration_seconds)`:                                           "a resize that had to wait for room",
	`kubelet_pod_requests_.*|kubelet_pod_resources_endpoint_.*`:                                                       "a client of the pods API, and one of the pod resources API",
	`kubelet_admission_rejections_total|kubelet_pod_level_resources_admission_total`:                                  "a pod that the node rejects, and one with resources as a whole",
	`kubelet_certificate_manager_server_rotation_seconds`:                                                             "a serving certificate that replaces an earlier one",
}

// onSomeHosts contains patterns of metrics that only some hosts have.
var onSomeHosts = map[string]string{
	`container_memory_(events_(high|max)|pgscan|pgsteal|workingset_refault_(anon|file))_total|container_memory_file_(dirty|writeback)_bytes`: "cgroup v2",
	`kubelet_memory_qos_.*`:                             "cgroup v2 and memoryReservationPolicy",
	`volume_manager_selinux_.*`:                         "SELinux",
	`container_pressure_.*`:                             "cgroup v2 and the kernel's pressure",
	`container_blkio_.*|container_fs_(reads|writes)_.*`: "containers whose I/O the kernel counts",
}

// TestFiguresOfWork checks the metrics of a node after several kinds of work: probes, image pulls, resizes, evictions, CPU pinning and
// mounts. The node must serve the metrics of all these operations. The names, types and labels must be those of the documentation, which is
// generated from upstream's list.
func TestFiguresOfWork(t *testing.T) {
	t.Parallel()
	c := start(t)
	r := c.Registry(t)
	n := c.Node(t, "")
	image, err := csiArchive()
	if err != nil {
		t.Fatal(err)
	}
	n.Write("state/images/csidriver.tar", string(image))
	n.Write("certs.d/"+r.Addr+"/hosts.toml", r.HostsFile(n.Disk+"/ca.crt"))
	n.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %[1]s/cni\nregistryConfigDir: %[1]s/certs.d\n", n.Disk))
	configure(n, `cpuManagerPolicy: static
kubeReserved: {cpu: 500m, memory: 99Mi}
memoryManagerPolicy: Static
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
topologyManagerPolicy: single-numa-node
`)
	device := loop(t, t.TempDir(), "disk", 16<<10)
	if out, err := exec.Command("mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v: %s", err, out)
	}
	n.Join("--rotate-server-certificates")
	c.ApproveServing(t, n.Name)
	ns := c.Namespace(t)
	driver := ns + ".csi.dev"
	csiDriver(t, c, driver, "attachRequired: false")
	files, fs := csiDisk(driver, "files", false), disk{name: "fs", source: "local: {path: " + device + "}", here: true}
	t.Cleanup(func() {
		c.Kubectl(t, "delete", "pv/"+ns+"-files", "pv/"+ns+"-fs", "--ignore-not-found", "--wait=false")
	})
	c.Kubectl(t, "-n", ns, "create", "secret", "docker-registry", "registry", "--docker-server="+r.Addr, "--docker-username="+r.User,
		"--docker-password="+r.Password)
	pulled := strings.Replace(pod(ns, "pulled", "imagePullSecrets: [{name: registry}]", "", "sleep"), machine.Image, r.Image, 1)
	const probes = `readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 100m, memory: 32Mi}}`
	c.Apply(t, csiPod(n, ns, driver)+
		files.manifest(ns, n.Name, "files")+claim(ns, "files", ns+"-files", "Filesystem")+
		fs.manifest(ns, n.Name, "fs")+claim(ns, "fs", ns+"-fs", "Filesystem")+
		pod(ns, "probed", "", probes, "serve", ":8080")+
		pod(ns, "pinned", "", "resources: {limits: {cpu: 1, memory: 32Mi}}", "sleep")+
		pod(ns, "mounts", "volumes: [{name: files, persistentVolumeClaim: {claimName: files}}, {name: fs, persistentVolumeClaim: {claimName: fs}}]\n",
			"volumeMounts: [{name: files, mountPath: /files}, {name: fs, mountPath: /fs}]", "sleep")+
		pod(ns, "broken", "", "command: [/none]", "sleep")+
		pod(ns, "filler", "volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]\n", "volumeMounts: [{name: v, mountPath: /v}]", "fill",
			"/v/file", "2"))
	c.AwaitReady(t, ns, "driver", "probed", "pinned", "mounts")
	c.AwaitPod(t, ns, "filler", "to be evicted", func(p *corev1.Pod) bool { return p.Status.Reason == "Evicted" })
	c.AwaitPod(t, ns, "broken", "to fail to start", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && (s[0].RestartCount > 0 || s[0].LastTerminationState.Terminated != nil || s[0].State.Terminated != nil)
	})
	resize(t, c, ns, "probed", sized("60m", "120m", "16Mi", "32Mi"))
	awaitResized(t, c, ns, "probed")
	resize(t, c, ns, "pinned", sized("1", "1", "48Mi", "48Mi"))
	c.AwaitPod(t, ns, "pinned", "to keep the memory that it is pinned to", func(p *corev1.Pod) bool {
		pending := condition(p, corev1.PodResizePending)
		return pending != nil && pending.Reason == corev1.PodReasonInfeasible
	})
	if out := c.Kubectl(t, "-n", ns, "exec", "probed", "--", "/podtool", "cat", "/etc/hostname"); strings.TrimSpace(out) != "probed" {
		t.Errorf("exec: %q", out)
	}
	c.Apply(t, strings.Replace(pulled, "imagePullPolicy: Never", "imagePullPolicy: IfNotPresent",
		1)) // last, because no other pod needs the image
	c.AwaitReady(t, ns, "pulled")
	compareFigures(t, c, n)
}

// compareFigures compares the metrics of a node with the documentation.
func compareFigures(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	t.Helper()
	used := map[string]bool{}
	for _, name := range figures.Check(t, machine.Root(t), func(path string) string {
		return c.Kubectl(t, "get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy"+path)
	}) {
		names := figures.FindPattern(notDone, name)
		used[names] = true
		if names == "" && figures.FindPattern(onSomeHosts, name) == "" {
			t.Errorf("no page has %s", name)
		}
	}
	for names, what := range notDone {
		if !used[names] {
			t.Errorf("%s have samples, but notDone says that they need %s", names, what)
		}
	}
}
