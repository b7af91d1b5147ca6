package migrate

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// runtime finds the container runtime of a kubelet.
func (p *planner) runtime(k *kubelet) {
	switch {
	case strings.Contains(k.endpoint, "crio"):
		p.crio()
	case strings.Contains(k.endpoint, "containerd"):
		p.containerd("/etc/containerd/config.toml")
	case strings.Contains(k.endpoint, "islet"):
	default:
		p.differ("", "--container-runtime-endpoint", "the runtime at "+k.endpoint+" is not known: export its images with its own tool "+
			"to "+inbox)
	}
}

// maxTOML is the maximum size of a file in TOML. The decoder calls itself for each bracket, so a large file could exhaust the stack. Some
// of the files belong to users without root.
const maxTOML = 128 << 10

// decodeTOML decodes a file into v, which has no unknown fields if it is a map. An invalid file is noted.
func (p *planner) decodeTOML(file string, v any) bool {
	text := p.host.read(file)
	if text == "" {
		return false
	}
	if len(text) > maxTOML {
		p.differ(file, "", "the file is too large, and was not read")
		return false
	}
	if err := toml.Unmarshal([]byte(text), v); err != nil {
		p.differ(file, "", "the file is not valid, and was not read: "+err.Error())
		return false
	}
	return true
}

// A criPlugin is the configuration of containerd's CRI plugin. In version 3 of the file, several plugins share these settings.
type criPlugin struct {
	SandboxImage string `toml:"sandbox_image"`
	Containerd   struct {
		Snapshotter           string                `toml:"snapshotter"`
		DiscardUnpackedLayers bool                  `toml:"discard_unpacked_layers"`
		DefaultRuntimeName    string                `toml:"default_runtime_name"`
		Runtimes              map[string]criRuntime `toml:"runtimes"`
	} `toml:"containerd"`
	Snapshotter           string `toml:"snapshotter"`
	DiscardUnpackedLayers bool   `toml:"discard_unpacked_layers"`
	CNI                   struct {
		BinDir  string   `toml:"bin_dir"`
		BinDirs []string `toml:"bin_dirs"`
		ConfDir string   `toml:"conf_dir"`
	} `toml:"cni"`
	Registry struct {
		ConfigPath string                    `toml:"config_path"`
		Mirrors    map[string]mirror         `toml:"mirrors"`
		Configs    map[string]registryConfig `toml:"configs"`
	} `toml:"registry"`
	ImageDecryption struct {
		KeyModel string `toml:"key_model"`
	} `toml:"image_decryption"`
	MaxContainerLogLineSize int      `toml:"max_container_log_line_size"`
	CDISpecDirs             []string `toml:"cdi_spec_dirs"`
}

type criRuntime struct {
	Type    string `toml:"runtime_type"`
	Path    string `toml:"runtime_path"`
	Options struct {
		BinaryName string `toml:"BinaryName"`
	} `toml:"options"`
}

// containerd adds the containerd that a kubelet uses.
func (p *planner) containerd(file string) {
	p.found("containerd", "the container runtime of the kubelet", "containerd")
	p.unitProxies("containerd")
	p.saveFiles("containerd", "/etc/containerd")
	p.containerdConfig(file)
	p.exportImages("containerd", ctrExport, noDigests)
	p.stopServices("stop containerd", "containerd")
	p.cni("/etc/cni/net.d")
	p.keep("/var/lib/containerd", "", "islet does not use or change it: it stays for the way back; remove it when you no longer need that")
}

// containerdConfig notes the settings of a config.toml of containerd.
func (p *planner) containerdConfig(file string) {
	var c struct {
		Imports []string       `toml:"imports"`
		Plugins map[string]any `toml:"plugins"`
		Proxy   map[string]any `toml:"proxy_plugins"`
		Streams map[string]any `toml:"stream_processors"`
	}
	var cri struct {
		Plugins struct {
			V1      criPlugin `toml:"cri"`
			V2      criPlugin `toml:"io.containerd.grpc.v1.cri"`
			Images  criPlugin `toml:"io.containerd.cri.v1.images"`
			Runtime criPlugin `toml:"io.containerd.cri.v1.runtime"`
		} `toml:"plugins"`
	}
	if !p.decodeTOML(file, &c) || !p.decodeTOML(file, &cri) {
		return
	}
	settings := map[string]criPlugin{"cri": cri.Plugins.V1, "io.containerd.grpc.v1.cri": cri.Plugins.V2,
		"io.containerd.cri.v1.images": cri.Plugins.Images, "io.containerd.cri.v1.runtime": cri.Plugins.Runtime}
	for _, name := range slices.Sorted(maps.Keys(c.Proxy)) {
		p.differ(file, "proxy_plugins."+name, "islet has no plugins of containerd: it uses the overlayfs snapshotter of its own")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Streams)) {
		p.differ(file, "stream_processors."+name, "islet does not decrypt layers")
	}
	if len(c.Imports) > 0 {
		p.differ(file, "imports", "these files were not read: "+strings.Join(c.Imports, " "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		set, isCRI := settings[name]
		switch {
		case isCRI:
			p.criPlugin(file, "plugins."+name, set)
		case name == "io.containerd.nri.v1.nri":
			p.differ(file, "plugins."+name, "islet has no NRI")
		default:
			p.differ(file, "plugins."+name, "islet does not read settings of this plugin")
		}
	}
}

func (p *planner) criPlugin(file, key string, c criPlugin) {
	if s := cmp.Or(c.Containerd.Snapshotter, c.Snapshotter, "overlayfs"); s != "overlayfs" {
		p.differ(file, key+" snapshotter", "islet uses overlayfs, not "+s)
	}
	if c.Containerd.DiscardUnpackedLayers || c.DiscardUnpackedLayers {
		p.differ(file, key+" discard_unpacked_layers", "containerd has deleted the layers' archives, so the export of images fails: "+
			"pull the images again, or copy archives of them to "+inbox)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Containerd.Runtimes)) {
		if name == "runc" {
			continue
		}
		r := c.Containerd.Runtimes[name]
		p.differ(file, key+" runtimes."+name, "add the handler to runtimeHandlers of /etc/islet/edge.yaml "+
			"("+cmp.Or(r.Options.BinaryName, r.Path, r.Type)+")")
	}
	if name := c.Containerd.DefaultRuntimeName; name != "" && name != "runc" {
		p.differ(file, key+" default_runtime_name", "set ociRuntime in /etc/islet/edge.yaml for "+name)
	}
	if c.SandboxImage != "" {
		p.differ(file, key+" sandbox_image", "islet needs no pause image")
	}
	if c.ImageDecryption.KeyModel != "" {
		p.differ(file, key+" image_decryption", "islet does not decrypt layers")
	}
	if c.MaxContainerLogLineSize > 0 {
		p.differ(file, key+" max_container_log_line_size", "the setting has no effect: a longer line is stored in parts")
	}
	if dir := c.CNI.ConfDir; dir != "" && dir != "/etc/cni/net.d" {
		p.differ(file, key+" cni.conf_dir", "set cniConfDir: "+dir+" in /etc/islet/edge.yaml")
	}
	if dirs := append(c.CNI.BinDirs, c.CNI.BinDir); slices.ContainsFunc(dirs, func(d string) bool {
		return d != "" && d != "/opt/cni/bin" && d != "/usr/lib/cni"
	}) {
		p.differ(file, key+" cni.bin_dir", "set cniBinDirs in /etc/islet/edge.yaml to "+strings.TrimSpace(strings.Join(dirs, " ")))
	}
	p.config.mirrors(file, key+" registry", c.Registry.Mirrors, c.Registry.Configs, false)
	for dir := range strings.SplitSeq(c.Registry.ConfigPath, ":") {
		switch dir = path.Clean(dir); {
		case c.Registry.ConfigPath == "":
		case dir == certs || dir == "/etc/docker/certs.d":
			p.hostsFiles(dir)
		default:
			p.hostsFiles(dir)
			p.differ(file, key+" registry.config_path", "set registryConfigDir: "+dir+" in /etc/islet/edge.yaml")
		}
	}
}

// hostsFiles notes the hosts.toml files in a directory.
func (p *planner) hostsFiles(dir string) {
	if dir == "/etc/docker/certs.d" {
		if p.host.exists(dir) {
			p.differ(dir, "", "islet reads only "+certs+": copy the folders there")
		}
		return
	}
	for _, name := range p.host.list(dir) {
		if file := path.Join(dir, name, "hosts.toml"); p.host.exists(file) {
			p.keep(file, "", "islet reads the same format")
		}
	}
}

// cni notes the CNI configurations in a directory.
func (p *planner) cni(dir string) {
	files := p.host.filesIn(dir, ".conf", ".conflist", ".json")
	for i, file := range files {
		if i == 0 {
			p.keep(file, "", "CNI configuration: pods of islet use it too, with the plugins in /opt/cni/bin")
			continue
		}
		p.keep(file, "", "CNI configuration, not used: the first file in "+dir+" is")
	}
	if len(files) == 0 {
		p.differ(dir, "", "there is no CNI configuration: pods get islet's built-in network, with other addresses")
	}
}

// crio adds the CRI-O that a kubelet uses.
func (p *planner) crio() {
	p.found("crio", "CRI-O, the container runtime of the kubelet", "crio")
	p.unitProxies("crio")
	p.saveFiles("CRI-O", "/etc/crio", "/etc/containers")
	files := append([]string{"/etc/crio/crio.conf"}, p.host.filesIn("etc/crio/crio.conf.d", ".conf", ".toml")...)
	for _, file := range files {
		p.crioConfig(file)
	}
	if p.host.exists("etc/containers/policy.json") && !strings.Contains(p.host.read("etc/containers/policy.json"),
		"insecureAcceptAnything") {
		p.differ("/etc/containers/policy.json", "", "islet verifies no signatures of images")
	}
	p.exportImages("crio", podmanExport, "CRI-O and podman share /var/lib/containers/storage. Without podman: skopeo copy "+
		"containers-storage:IMAGE docker-archive:FILE:IMAGE")
	p.stopServices("stop CRI-O", "crio")
	p.cni("/etc/cni/net.d")
	p.keep("/var/lib/containers", "", "islet does not use or change it: it stays for the way back; remove it when you no longer need that")
}

// maxKeys is the maximum number of keys of a file that are noted because islet does not read them.
const maxKeys = 100

// crioAdvice is what to do about a setting of CRI-O.
const crioAdvice = `
crio.image.insecure_registries: write a hosts.toml in /etc/containerd/certs.d
crio.image.pause_image: islet needs no pause image
crio.image.registries: islet has no search list: write full image names
crio.network.network_dir: set cniConfDir in /etc/islet/edge.yaml
crio.network.plugin_dirs: set cniBinDirs in /etc/islet/edge.yaml
crio.runtime.allowed_annotations: the annotations of CRI-O have no effect
crio.runtime.cgroup_manager: set cgroupDriver in the KubeletConfiguration
crio.runtime.default_runtime: set ociRuntime in /etc/islet/edge.yaml
crio.runtime.default_ulimits: islet has no such setting: containers get the agent's limit of open files
crio.runtime.hooks_dir: islet runs no OCI hooks
crio.runtime.log_size_max: set containerLogMaxSize in the KubeletConfiguration
crio.runtime.pids_limit: set podPidsLimit in the KubeletConfiguration, for a pod instead of a container
`

// crioConfig notes each setting of a file of CRI-O. The value is advice, where islet has a setting of its own.
func (p *planner) crioConfig(file string) {
	var all map[string]any
	if !p.decodeTOML(file, &all) {
		return
	}
	keys := flatten("", all, nil, 0)
	for i, key := range keys {
		if i == maxKeys {
			p.differ(file, "", strconv.Itoa(len(keys)-i)+" more settings have no effect")
			break
		}
		if rest, ok := strings.CutPrefix(key, "crio.runtime.runtimes."); ok {
			if name, last, _ := strings.Cut(rest, "."); last == "runtime_path" && name != "crun" && name != "runc" {
				p.differ(file, key, "add the handler "+name+" to runtimeHandlers of /etc/islet/edge.yaml")
			}
			continue
		}
		p.differ(file, key, cmp.Or(lookup(crioAdvice, key), "islet does not read it"))
	}
}

// maxDepth is the maximum depth of the settings that flatten returns.
const maxDepth = 8

// flatten appends the keys of all values in a table, sorted, with dots.
func flatten(prefix string, table map[string]any, keys []string, depth int) []string {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if inner, ok := table[name].(map[string]any); ok && depth < maxDepth {
			keys = flatten(prefix+name+".", inner, keys, depth+1)
			continue
		}
		keys = add(keys, prefix+name)
	}
	return keys
}
