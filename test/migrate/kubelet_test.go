package migrate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/system"
)

// node has the files of a worker of kubeadm with Debian's containerd. The packages of Kubernetes contain the unit and its drop-in. Its API
// server cannot be reached.
var node = file("/usr/lib/systemd/system/kubelet.service", `[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target
[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10
[Install]
WantedBy=multi-user.target
`) + file("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`) + file("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--node-labels=site=roof\"\n") +
	file("/var/lib/kubelet/instance-config.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
`) + file("/var/lib/kubelet/config.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
failCgroupV1: false
healthzBindAddress: 127.0.0.1
healthzPort: 10248
kind: KubeletConfiguration
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
`) + file("/etc/kubernetes/kubelet.conf", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", certificate-authority: /etc/kubernetes/pki/ca.crt}}]
users: [{name: u, user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem, client-key: /var/lib/kubelet/pki/kubelet-client-current.pem}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`) + file("/etc/containerd/config.toml", `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:test"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".registry.mirrors."shop.example"]
    endpoint = ["http://127.0.0.1:5000"]
  [plugins."io.containerd.grpc.v1.cri".registry.configs."private.example".auth]
    username = "board"
    password = "secret"
`) + file("/etc/cni/net.d/10-test.conflist", `{"cniVersion": "1.0.0", "name": "test", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]],
    "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`) + file("/etc/kubernetes/manifests/web.yaml", `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: page, image: "localhost/podtool:test", args: [serve, ":80", /data/requests], ports: [{containerPort: 80, hostPort: 8080}],
     volumeMounts: [{name: data, mountPath: /data}]}
  - {name: db, image: "localhost/podtool:test", args: [live, /data/starts, db], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, hostPath: {path: /srv/web}}]
`) + file("/etc/kubernetes/manifests/tools.yaml", tools("1"))

// tools returns a pod whose image is pulled from a mirror.
func tools(tag string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: tools" + tag + "}\nspec:\n  terminationGracePeriodSeconds: 1\n" +
		"  containers: [{name: c, image: \"shop.example/tools:" + tag + "\", args: [sleep]}]\n"
}

// bootNode returns a node whose kubelet runs both pods in containerd, and the registry of its mirror.
func bootNode(t *testing.T, release string) (*system.System, *registry) {
	t.Helper()
	dir := os.Getenv("ISLET_KUBELET")
	if dir == "" {
		t.Skip("no kubelet: make test-migrate")
	}
	s := boot(t, release, map[string]string{"kubelet": filepath.Join(dir, "kubelet"), "crictl": filepath.Join(dir, "crictl"),
		"identity.pem": identity(t), "pause.tar": machine.PauseArchive(t, t.TempDir())})
	r := serveRegistry(t, s, 5000, "/v2/")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := s.Try("journalctl -b --no-pager -u kubelet -u containerd -o cat | grep -E 'pod_workers|kuberuntime|level=error' | cut -c1-600 | head -20")
			t.Log(out)
		}
	})
	s.Run("set -e; touch /dev/kmsg; ip link add up0 type veth peer up1; ip link set up1 up; ip addr add 192.0.2.10/24 dev up0; ip link set up0 up; ip route add default via 192.0.2.1; systemctl stop containerd; rm /etc/cni/net.d/*; mkdir -p /srv/web /var/lib/kubelet/pki /etc/kubernetes/pki\n" + node + `
		cp /payload/kubelet /usr/bin/ && cp /payload/crictl /usr/bin/
		cp /payload/identity.pem /etc/kubernetes/pki/ca.crt && cp /payload/identity.pem /var/lib/kubelet/pki/kubelet-client-current.pem
		systemctl daemon-reload && systemctl start containerd
		ctr -n k8s.io images import /payload/podtool.tar && ctr -n k8s.io images import /payload/pause.tar
		systemctl enable --now kubelet`)
	underKubelet(t, s, "db starts")
	if !r.has("tools:1") {
		t.Error("containerd did not use the mirror")
	}
	return s, r
}

// identity returns a file with a key and a certificate, which is a CA and the client certificate of the node.
func identity(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:edge", Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * 365 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "identity.pem")
	content := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// underKubelet checks that both pods run in containerd.
func underKubelet(t *testing.T, s *system.System, starts string) {
	t.Helper()
	if got := request(s, 8080); got != "web-edge" {
		t.Errorf("the page is %q", got)
	}
	s.Await("[ $(crictl --runtime-endpoint unix:///run/containerd/containerd.sock ps -q | wc -l) = 3 ]")
	s.Await("[ \"$(cat /srv/web/starts)\" = '" + starts + "' ] || { cat /srv/web/starts; exit 1; }")
	s.Run("systemctl is-active kubelet containerd && [ $(readlink -f /proc/$(pgrep -x kubelet)/exe) = /usr/bin/kubelet ] && ! ps -eo comm | grep islet")
}

// tolerate lets islet status report that the API server cannot be reached.
func tolerate(steps [][]string) [][]string {
	for _, commands := range steps {
		for i := range commands {
			commands[i] = strings.ReplaceAll(commands[i], "islet status", "{ islet status | grep 'Ready: *yes'; }")
		}
	}
	return steps
}

// underIslet checks that both pods run under islet with the images of containerd, and that a new image is pulled from the mirror.
func underIslet(t *testing.T, s *system.System, r *registry) {
	t.Helper()
	waitForPods(s, "web-edge", "tools1-edge")
	if r.has("tools:1") {
		t.Error("an image of containerd was pulled again")
	}
	if got := request(s, 8080); got != "web-edge" {
		t.Errorf("islet's page is %q", got)
	}
	expect(t, s, "/srv/web/starts", "db starts\ndb ends\ndb starts\n")
	s.Run("! pgrep -x containerd && ! systemctl is-enabled containerd && systemctl is-active kubelet && systemctl is-enabled kubelet")
	s.Run("[ $(readlink -f /proc/$(pgrep -x kubelet)/exe) = /usr/local/bin/islet ] && [ $(stat -c %a /var/lib/kubelet/config.json) = 600 ]")
	s.Run("crictl pods | grep -q web-edge")
	s.Run("PATH=/usr/local/bin:$PATH; islet pods -o wide | grep web-edge | grep -qF 10.77.0. || { islet pods -o wide; exit 1; }")
	s.Run(file("/etc/kubernetes/manifests/new.yaml", tools("2")))
	waitForPods(s, "web-edge", "tools1-edge", "tools2-edge")
	if !r.has("tools:2") {
		t.Error("islet did not use the mirror")
	}
	s.Run("rm /etc/kubernetes/manifests/new.yaml")
	waitForPods(s, "web-edge", "tools1-edge")
}

// repeatSave repeats the copies of the settings after the steps that change the settings, as an administrator who begins again does.
func repeatSave(steps [][]string) (all [][]string) {
	var saves [][]string
	for _, commands := range steps {
		switch text := strings.Join(commands, "\n"); {
		case strings.Contains(text, "/root/before-islet"):
			saves = append(saves, commands)
		case strings.Contains(text, "install.sh"):
			all = append(all, saves...)
		}
		all = append(all, commands)
	}
	return all
}

// TestKubelet follows the report of islet doctor --migrate on a node of kubeadm to islet and back.
func TestKubelet(t *testing.T) {
	for _, release := range []string{"bookworm", "trixie"} {
		t.Run(release, func(t *testing.T) {
			s, r := bootNode(t, release)
			before := reportOf(s, t)
			r.forget()
			follow(s, repeatSave(tolerate(commandsOf(before.Steps))))
			underIslet(t, s, r)
			follow(s, commandsOf(before.Back))
			underKubelet(t, s, strings.Repeat("db starts\ndb ends\n", 2)+"db starts")
		})
	}
}

// TestKubeletPage does the same with the commands of docs/from-kubelet.md.
func TestKubeletPage(t *testing.T) {
	s, r := bootNode(t, "bookworm")
	r.forget()
	s.Run("echo 'runtime-endpoint: unix:///run/containerd/containerd.sock' >/etc/crictl.yaml")
	kubectl := regexp.MustCompile(`(?m)^ *kubectl .*`) // for another machine
	edit := func(block string) []string {
		return []string{kubectl.ReplaceAllString(strings.ReplaceAll(block, "sudo ", ""), "")}
	}
	follow(s, tolerate(page(t, "from-kubelet.md", "What to do", edit)))
	underIslet(t, s, r)
	follow(s, page(t, "from-kubelet.md", "The way back", edit))
	underKubelet(t, s, strings.Repeat("db starts\ndb ends\n", 2)+"db starts")
}
