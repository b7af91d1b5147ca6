package migrate

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/islet-edge/islet/internal/config"
)

// defaultK3s is the data directory of k3s, unless it has another one.
const defaultK3s = "/var/lib/rancher/k3s"

// k3sFiles are the paths and settings of a k3s.
type k3sFiles struct {
	unit     string            // name of the service, such as k3s-agent
	service  string            // path of the service's unit or script; empty if it was not found
	isAgent  bool              // it is not a server
	isKnown  bool              // the command line was read
	line     []flag            // flags of k3s on the command line
	settings []k3sSetting      // of all places
	env      map[string]string // environment of the service
	dir      string            // the data directory
	agent    string            // the directory of the agent in the data directory
	url      string            // address of the server; empty if it is not known
	external string            // addresses of --node-external-ip, each with a comma after it
	hasIface bool              // --flannel-iface is set
	flags    []flag            // flags of islet
}

// k3s finds the k3s of this host, and adds all that concerns it. A kubelet that was found owns the steps at the cluster's side.
func (p *planner) k3s(other *kubelet) {
	var k k3sFiles
	if !p.findK3s(&k) {
		return
	}
	k.dir = defaultK3s
	p.k3sApply(&k)
	k.agent = path.Join(k.dir, "agent")
	what := "an agent of the server " + cmp.Or(k.url, "that its configuration names")
	if !k.isAgent {
		what = "a server with an agent"
		p.addSteps(k3sServer)
	}
	p.found(k.unit, what, "k3s", "k3s-agent", "k3s-server")
	if p.proxies(k.service, k.env); !hasProxy(k.env) {
		p.direct = hostName(k.url)
	}
	p.k3sKept(&k)
	p.k3sLost(&k)
	if other == nil {
		p.addSteps(drainSteps)
	}
	p.k3sSteps(&k)
}

// k3sAdvice is what to do about a key of k3s' configuration. Keys that are not listed have no counterpart.
const k3sAdvice = `
airgap-extra-registry: name the images in full
cluster-init: it concerns only the server
container-runtime-endpoint: islet uses its own runtime
data-dir: the paths below are in this directory
default-runtime: set ociRuntime in /etc/islet/edge.yaml
disable: it concerns only the server
disable-default-registry-endpoint: translated into the server of hosts.toml
disable-network-policy: it concerns only the server
docker: islet does not use docker
egress-selector-mode: it concerns only the server
enable-pprof: set enableProfilingHandler in the KubeletConfiguration
flannel-iface: set it in the DaemonSet of flannel
image-service-endpoint: islet uses its own runtime
kube-proxy-arg: set it in the DaemonSet of kube-proxy
lb-server-port: islet has no load balancer: it uses the address with which it has joined
node-external-dns: k3s' cloud controller sets it from an annotation of the agent: it is missing
node-external-ip: k3s' cloud controller sets it from an annotation of the agent: it is missing
node-internal-dns: k3s' cloud controller sets it from an annotation of the agent: it is missing
nonroot-devices: islet has no such setting
pause-image: islet needs no pause image
prefer-bundled-bin: islet brings what it needs
private-registry: the file is translated
rootless: islet needs root
selinux: see islet doctor for SELinux
server: islet join needs it
snapshotter: islet uses overlayfs
tls-san: it concerns only the server
token: islet join needs it once
token-file: islet join needs it once
vpn-auth: islet sets up no VPN
with-node-id: the flag --hostname-override has the name in the node's certificate, with the suffix
write-kubeconfig-mode: it concerns only the server
`

// k3sFlags are the flags of islet for keys of k3s' configuration.
const k3sFlags = `
bind-address: address
image-credential-provider-bin-dir: image-credential-provider-bin-dir
image-credential-provider-config: image-credential-provider-config
node-ip: node-ip
node-label: node-labels
node-name: hostname-override
node-taint: register-with-taints
protect-kernel-defaults: protect-kernel-defaults
resolv-conf: resolv-conf
v: v
`

// isFlag is the note about a setting that becomes a flag of islet.
const isFlag = "a flag of islet, in the step that gives the flags"

// k3sJoin are the arguments of the kubelet that would override the settings of islet join.
const k3sJoin = `
bootstrap-kubeconfig: islet join gets the node's certificates
client-ca-file: islet join sets it in /etc/islet/kubelet.yaml
kubeconfig: islet join writes the kubeconfig
rotate-certificates: islet join sets it in /etc/islet/kubelet.yaml
rotate-server-certificates: islet join sets it in /etc/islet/kubelet.yaml
tls-cert-file: islet join sets it in /etc/islet/kubelet.yaml
tls-private-key-file: islet join sets it in /etc/islet/kubelet.yaml
`

// k3sConfiguration notes a KubeletConfiguration of k3s, if there is such a file.
func (p *planner) k3sConfiguration(file string) {
	text := p.host.read(file)
	if text == "" {
		return
	}
	p.keep(file, "", "KubeletConfiguration: copy the fields that you have set to /etc/islet/kubelet.yaml, but not "+
		"containerRuntimeEndpoint")
	p.checkConfiguration(file, text)
}

// k3sArguments notes the arguments of the kubelet in k3s.
func (p *planner) k3sArguments(k *k3sFiles, s k3sSetting) {
	for _, item := range strings.Split(s.value, "\n") {
		name, text, _ := strings.Cut(strings.TrimLeft(item, "-"), "=")
		switch none, known := config.DescribeFlag(name); {
		case name == "container-runtime-endpoint" || name == "image-service-endpoint":
		case name == "config" || name == "config-dir":
			p.differ(s.file, "kubelet-arg "+name, "no flag of islet, because it would replace the settings of islet join")
			for _, file := range append(p.host.filesIn(text, ".conf"), text) {
				p.k3sConfiguration(file)
			}
		case lookup(k3sJoin, name) != "":
			p.differ(s.file, "kubelet-arg "+name, lookup(k3sJoin, name))
		case !known:
			p.differ(s.file, "kubelet-arg "+name, "islet does not know the flag")
		case none != "":
			p.differ(s.file, "kubelet-arg "+name, "the flag has no effect: "+none)
		default:
			k.flags = append(k.flags, flag{name, text})
			p.keep(s.file, "kubelet-arg "+name, isFlag)
		}
	}
}

// k3sKept notes the files that islet uses.
func (p *planner) k3sKept(k *k3sFiles) {
	for _, f := range []struct{ name, what string }{
		{"client-kubelet.crt", "the node's certificate, for the way back: islet join requests another one"},
		{"serving-kubelet.crt", "the certificate of port 10250, for the way back: islet join requests another one"},
	} {
		if file := path.Join(k.agent, f.name); p.host.exists(file) {
			p.keep(file, "", f.what)
		}
	}
	for _, file := range p.host.filesIn(path.Join(k.agent, "etc/kubelet.conf.d"), ".conf") {
		p.k3sConfiguration(file)
	}
	p.staticPods(path.Join(k.agent, "pod-manifests"), true)
	if list := p.host.list(path.Join(k.dir, "storage")); len(list) > 0 {
		p.keep(path.Join(k.dir, "storage"), "", "volumes of the local-path provisioner ("+strconv.Itoa(len(list))+"): the data stays, "+
			"and pods find it at the same path")
	}
	for _, file := range p.host.filesIn(path.Join(k.agent, "images"), "") {
		switch name := path.Base(file); {
		case strings.HasSuffix(name, ".tar"), strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"),
			strings.HasSuffix(name, ".tar.zst"):
			p.keep(file, "", "archive of images: copy it to "+inbox)
		case strings.HasSuffix(name, ".txt"):
			p.differ(file, "", "islet does not pull the images of a list: islet images pull NAME")
		case strings.HasSuffix(name, ".json"):
		default:
			p.differ(file, "", "islet reads archives that are plain, gzip or zstd: decompress the file")
		}
	}
}

// k3sLost notes the parts of k3s that islet does not have.
func (p *planner) k3sLost(k *k3sFiles) {
	for _, name := range []string{"config.toml.tmpl", "config-v3.toml.tmpl"} {
		if file := path.Join(k.agent, "etc/containerd", name); p.host.exists(file) {
			p.differ(file, "", "the template of containerd's configuration is not read: see what you have changed in it")
		}
	}
	if file := path.Join(k.agent, "etc/containerd/config.toml"); p.host.exists(file) {
		p.k3sRuntimes(file)
	}
}

// k3sRuntimes notes the runtimes that k3s has found and written into the configuration of its containerd.
func (p *planner) k3sRuntimes(file string) {
	var all map[string]any
	if !p.decodeTOML(file, &all) {
		return
	}
	for _, key := range flatten("", all, nil, 0) {
		name, ok := strings.CutSuffix(key, ".runtime_type")
		if name = name[strings.LastIndex(name, ".")+1:]; ok && name != "runc" {
			p.differ(file, "runtimes."+name, "add the handler to runtimeHandlers of /etc/islet/edge.yaml if a RuntimeClass uses it")
		}
	}
}

func (p *planner) k3sSteps(k *k3sFiles) {
	files := []string{"/etc/rancher", "/etc/default/" + k.unit, "/etc/sysconfig/" + k.unit, path.Join(k.agent, "kubelet.kubeconfig")}
	if k.service != "" {
		files = append(files, k.service, k.service+".env", k.service+".d")
	}
	p.saveFiles("k3s", files...)
	env := "" // for programs of k3s: the script ends only shims below this directory
	if k.dir != defaultK3s {
		env = "K3S_DATA_DIR=" + word(k.dir) + " "
	}
	p.exportImages("k3s", strings.ReplaceAll(k3sExport, "k3s ctr", env+"k3s ctr"),
		noDigests+". The archives in "+path.Join(k.agent, "images")+" can be copied instead")
	p.stopServices("stop k3s", k.unit)
	killall := env + "k3s-killall.sh"
	if p.host.exists("run/islet") {
		killall = "reboot"
	}
	p.addSteps(k3sStop, "{killall}", killall, "{shims}", word(k.dir+"/data/[^/]*/bin/containerd-shim"))
	if !k.isAgent {
		return
	}
	url := cmp.Or(k.url, "https://SERVER:6443")
	join := ""
	for _, f := range k.flags {
		name := map[string]string{"hostname-override": "node-name", "node-ip": "node-ip"}[f.name]
		if text := (flag{name, f.value}).String(); name != "" && word(text) == text { // giveFlags reports the others
			join += " " + text
		}
	}
	p.giveFlags(append([]flag{{"pod-manifest-path", "/etc/kubernetes/manifests"}}, k.flags...))
	p.addSteps(k3sIdentity, "{url}", word(url), "{flags}", join) // it compares the flags with its settings
}
