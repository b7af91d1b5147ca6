package migrate

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/agent/doctor/unitfile"
	"github.com/islet-edge/islet/internal/config"
)

// A kubelet is a kubelet that is installed as kubelet.service, and that is not islet.
type kubelet struct {
	kubeadm    bool
	program    string
	flags      []flag
	config     string // path of the KubeletConfiguration; empty if there is none
	endpoint   string // socket of the container runtime
	staticPods string // directory of static pods; empty if there is none
}

// A flag is a flag of a command line, without dashes. The value of a flag without a value is "".
type flag struct{ name, value string }

// String returns the flag as a word of a command line.
func (f flag) String() string {
	if f.value == "" {
		return "--" + f.name
	}
	return "--" + f.name + "=" + f.value
}

// parseFlags returns the flags in a command line. The value of a flag may be the next word.
func parseFlags(words []string) (flags []flag) {
	for i := 0; i < len(words); i++ {
		text, ok := strings.CutPrefix(words[i], "-")
		if text = strings.TrimPrefix(text, "-"); !ok || text == "" {
			continue
		}
		name, value, joined := strings.Cut(text, "=")
		if !joined && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			value = words[i]
		}
		flags = append(flags, flag{strings.ReplaceAll(name, "_", "-"), value})
	}
	return flags
}

// value returns the last value of a flag.
func (k *kubelet) value(name string) string {
	for _, f := range slices.Backward(k.flags) {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// runtimeEndpoint returns the socket of the container runtime.
func (k *kubelet) runtimeEndpoint(set kubeletSettings) string {
	return cmp.Or(k.value("container-runtime-endpoint"), set.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
}

// unitCommand returns the command line of the kubelet's unit.
func unitCommand(host *Tree) []string {
	unit := unitfile.Read(host, "kubelet.service")
	return unitfile.Expand(unitfile.Words(unit.Command), unit.Environment(host))
}

// kubelet finds the kubelet of this host, and adds all that concerns it. It returns nil if there is no such kubelet.
func (p *planner) kubelet() *kubelet {
	words := unitCommand(p.host)
	if pid := p.process("kubelet"); pid != 0 {
		if line := p.host.read(fmt.Sprintf("proc/%d/cmdline", pid)); line != "" {
			words = strings.Split(strings.TrimRight(line, "\x00"), "\x00")
		}
	}
	if len(words) == 0 || words[0] == "" || path.Base(p.host.linkTarget(words[0])) == "islet" {
		return nil
	}
	k := &kubelet{program: words[0], flags: parseFlags(words[1:])}
	k.kubeadm = p.host.exists("etc/kubernetes/kubelet.conf") && p.host.exists("var/lib/kubelet/config.yaml") ||
		p.host.exists("var/lib/kubelet/kubeadm-flags.env")
	unit := unitfile.Read(p.host, "kubelet.service")
	env := unit.Environment(p.host)
	if !hasProxy(env) {
		p.direct = p.serverOf(k.value("kubeconfig"))
	}
	what := k.program
	p.asKubelet = k.kubeadm
	if k.kubeadm {
		what += ", of a node that kubeadm manages"
	}
	p.proxies("kubelet.service", env)
	p.found("kubelet", what, "kubelet")
	p.kubeletFiles(k)
	p.kubeletFlags(k)
	p.addSteps(drainSteps)
	p.kubeletSteps(k)
	return k
}

// kubeletSettings are the fields of a KubeletConfiguration that concern a migration.
type kubeletSettings struct {
	StaticPodPath            string `json:"staticPodPath"`
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	CgroupDriver             string `json:"cgroupDriver"`
}

// readSettings reads a KubeletConfiguration. An invalid file has no settings.
func readSettings(host *Tree, file string) (set kubeletSettings) {
	if yaml.Unmarshal([]byte(host.read(file)), &set) != nil {
		return kubeletSettings{}
	}
	return set
}

// kubeletKept are files that a kubelet has, with what islet does with them.
const kubeletKept = `
/etc/kubernetes/pki/ca.crt: the cluster's CA: islet reads the same file
/var/lib/kubelet/pki: the node's certificates: islet uses and renews them
/var/lib/kubelet/plugins: CSI drivers and plugins: islet uses the same directory
/var/lib/kubelet/pods: volumes of pods that the API server still assigns to this node; emptyDirs are lost where a pod is replaced
`

// kubeletFiles adds the kubelet's files, and the differences of its KubeletConfiguration.
func (p *planner) kubeletFiles(k *kubelet) {
	var set kubeletSettings
	if k.config = k.value("config"); k.config != "" {
		text := p.host.read(k.config)
		if err := yaml.Unmarshal([]byte(text), &set); err != nil && text != "" {
			p.differ(k.config, "", "the file is not valid: "+err.Error())
		}
		p.keep(k.config, "", "KubeletConfiguration: islet reads the same file")
		p.checkConfiguration(k.config, text)
	}
	k.endpoint = k.runtimeEndpoint(set)
	if strings.Contains(k.endpoint, "islet") { // the steps have begun
		before := &Tree{root: p.host.root, isSaved: true}
		former := kubelet{flags: parseFlags(unitCommand(before))}
		k.endpoint = former.runtimeEndpoint(readSettings(before, k.config))
	}
	k.staticPods = cmp.Or(k.value("pod-manifest-path"), set.StaticPodPath)
	for _, name := range []string{"kubeconfig", "bootstrap-kubeconfig"} {
		if file := k.value(name); file != "" && p.host.exists(file) {
			p.keep(file, "", "islet reads the same file (--"+name+")")
		}
	}
	for line := range strings.Lines(kubeletKept) {
		if file, what, _ := strings.Cut(strings.TrimSpace(line), ": "); file != "" && p.host.exists(file) {
			p.keep(file, "", what)
		}
	}
	p.staticPods(k.staticPods, false)
	for _, file := range []string{"/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"} {
		if p.host.exists(file) {
			p.differ(file, "", "islet does not read it: exclusive CPUs and memory are assigned anew")
		}
	}
	if slices.ContainsFunc(p.host.filesIn("etc/kubernetes/manifests", ".yaml"), func(f string) bool {
		return path.Base(f) == "kube-apiserver.yaml"
	}) {
		p.differ("/etc/kubernetes/manifests/kube-apiserver.yaml", "", "this machine is a control plane node: its API server stops "+
			"during the migration. Migrate such a node last, one at a time, and run kubectl on another one")
	}
}

// checkConfiguration notes the fields of a KubeletConfiguration that islet does not accept, and those without effect.
func (p *planner) checkConfiguration(file, text string) {
	if text == "" {
		return
	}
	_, mistakes, notices := config.Check(file, []byte(text))
	for _, m := range mistakes {
		p.differ(file, m.Field, "islet does not start with it: "+m.Detail)
	}
	for _, n := range notices {
		p.differ(file, n.Field, n.Detail)
	}
}

// kubeletFlags notes the flags that islet does not know, and those without effect.
func (p *planner) kubeletFlags(k *kubelet) {
	for _, f := range k.flags {
		switch none, known := config.DescribeFlag(f.name); {
		case f.name == "container-runtime-endpoint" || f.name == "image-service-endpoint":
		case !known:
			p.differ("", "--"+f.name, "islet does not know the flag, and does not start with it: remove it")
		case none != "":
			p.differ("", "--"+f.name, "the flag has no effect: "+none)
		}
	}
}

// staticPods adds the manifests in a directory. If copied is true, the manifests are written for another directory.
func (p *planner) staticPods(dir string, copied bool) {
	if dir == "" {
		return
	}
	for _, file := range p.host.filesIn(dir, ".yaml", ".yml", ".json") {
		text := p.host.read(file)
		if text == "" {
			continue
		}
		p.keep(file, "", "static pod, as it is")
		p.inspect(file, text)
		if copied {
			p.addFile("manifests/"+path.Base(file), text, file)
		}
	}
}

// maxDocuments is the maximum number of documents of a manifest that are searched for hostPaths and claims.
const maxDocuments = 64

// inspect notes the directories of the host that a manifest mounts, and remembers the claims that it defines.
func (p *planner) inspect(file, text string) {
	for i, doc := range strings.Split(text, "\n---") {
		var object struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				Volumes []struct {
					HostPath *struct {
						Path string `json:"path"`
					} `json:"hostPath"`
				} `json:"volumes"`
			} `json:"spec"`
		}
		if i >= maxDocuments {
			return
		}
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			p.differ(file, "", "islet rejects the file: a document is not valid: "+err.Error())
			return
		}
		if object.Kind == "PersistentVolumeClaim" {
			p.claimed = add(p.claimed, object.Metadata.Name)
		}
		for _, v := range object.Spec.Volumes {
			if v.HostPath != nil {
				p.keep(v.HostPath.Path, "", "a hostPath of "+file+": the data stays")
			}
		}
	}
}

func (p *planner) kubeletSteps(k *kubelet) {
	p.saveFiles("the kubelet", "/etc/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d",
		"/var/lib/kubelet/config.yaml",
		"/var/lib/kubelet/kubeadm-flags.env", "/var/lib/kubelet/instance-config.yaml", "/etc/sysconfig/kubelet", "/etc/default/kubelet",
		"/etc/crictl.yaml")
	p.stopServices("stop the kubelet, so that it does not start its pods again", "kubelet")
	p.addSteps(kubeletStop, "{endpoint}", word(k.endpoint))
	p.runtime(k)
	var files []string
	short := strings.Replace(k.endpoint, ":///var/run/", ":///run/", 1)
	long := strings.Replace(short, ":///run/", ":///var/run/", 1)
	for _, f := range []string{k.config, "/var/lib/kubelet/kubeadm-flags.env", "/var/lib/kubelet/instance-config.yaml",
		"/etc/sysconfig/kubelet", "/etc/default/kubelet", "/etc/crictl.yaml"} {
		if f == "" {
			continue
		}
		if text := p.host.read(f); strings.Contains(text, short) || strings.Contains(text, long) {
			files = add(files, word(f))
		}
	}
	if len(files) > 0 && !strings.ContainsAny(k.endpoint, "#\\&;\n") { // sed does not interpret it
		pattern := strings.Replace(short, ":///run/", `://\(/var\)*/run/`, 1)
		p.addSteps(kubeletSocket, "{sed}", word("s#"+pattern+"#unix:///run/islet/cri.sock#"), "{files}", strings.Join(files, " "))
	}
	if k.kubeadm {
		p.addSteps(kubeadmSteps, "{endpoint}", word(k.endpoint))
	} else {
		p.giveFlags(k.isletFlags())
	}
	if k.program == "/usr/local/bin/kubelet" {
		p.addSteps(kubeletMove)
	}
	for _, file := range p.host.filesIn("etc/systemd/system/kubelet.service.d", ".conf") {
		if path.Base(file) != "10-kubeadm.conf" && strings.Contains(p.host.read(file), "ExecStart=") {
			p.differ(file, "ExecStart", "the drop-in replaces islet's command line: remove this setting, and put flags into "+
				"/etc/default/kubelet")
		}
	}
}

// isletFlags returns those flags of a kubelet that have an effect in islet.
func (k *kubelet) isletFlags() (flags []flag) {
	for _, f := range k.flags {
		none, known := config.DescribeFlag(f.name)
		if known && none == "" && f.name != "container-runtime-endpoint" && f.name != "image-service-endpoint" {
			flags = append(flags, f)
		}
	}
	return flags
}
