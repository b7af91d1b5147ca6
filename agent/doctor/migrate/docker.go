package migrate

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxContainers is the maximum number of containers of docker that are read.
const maxContainers = 200

// dockerAdvice is what to do about a setting of docker.
const dockerAdvice = `
bip: set podCIDR in the KubeletConfiguration
data-root: islet stores images in /var/lib/islet
default-address-pools: set podCIDR in the KubeletConfiguration
default-runtime: set ociRuntime in /etc/islet/edge.yaml
default-shm-size: mount an emptyDir with medium: Memory at /dev/shm
dns: set dnsConfig in the manifests
exec-opts: set cgroupDriver in the KubeletConfiguration
live-restore: docker's containers keep running when docker stops, so stop them first. Pods of islet keep running while it restarts
log-driver: logs are files in /var/log/pods
log-opts: set containerLogMaxSize in the KubeletConfiguration
proxies: see the step that gives the proxy
runtimes: set runtimeHandlers in /etc/islet/edge.yaml
storage-driver: islet uses overlayfs
userns-remap: write hostUsers: false into the manifests
`

// docker finds docker, and adds all that concerns it.
func (p *planner) docker() {
	if p.serviceKind("docker") == "" && p.process("dockerd") == 0 {
		return
	}
	settings, dir := p.daemonJSON("/etc/docker/daemon.json")
	p.found("docker", "the docker engine", "dockerd")
	p.unitProxies("docker")
	for i, key := range slices.Sorted(maps.Keys(settings)) {
		switch text := lookup(dockerAdvice, key); {
		case key == "registry-mirrors" || key == "insecure-registries" || i >= maxKeys:
		case text != "":
			p.differ("/etc/docker/daemon.json", key, text)
		default:
			p.differ("/etc/docker/daemon.json", key, "islet has no such setting")
		}
	}
	p.dockerContainers(path.Join(dir, "containers"))
	for _, name := range p.host.list(path.Join(dir, "volumes")) {
		if data := path.Join(dir, "volumes", name, "_data"); p.host.exists(data) {
			p.keep(data, "", "the data of a volume: copy it to /var/lib/islet/claims/default/"+name+", or mount it as a hostPath")
		}
	}
	p.authFiles()
	p.saveFiles("docker", "/etc/docker")
	p.exportImages("docker", dockerExport, "images without a name are not exported")
	p.addSteps(dockerSteps)
	p.stopServices("stop docker and its containers", "docker.socket", "docker")
}

// daemonJSON reads docker's settings. It returns the settings, and docker's data directory.
func (p *planner) daemonJSON(file string) (settings map[string]json.RawMessage, dir string) {
	dir = "/var/lib/docker"
	text := p.host.read(file)
	if text == "" {
		return nil, dir
	}
	var known struct {
		DataRoot string   `json:"data-root"`
		Mirrors  []string `json:"registry-mirrors"`
		Insecure []string `json:"insecure-registries"`
		Proxies  struct {
			HTTP  string `json:"http-proxy"`
			HTTPS string `json:"https-proxy"`
			No    string `json:"no-proxy"`
		} `json:"proxies"`
	}
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		p.differ(file, "", "the file is not valid, and was not read: "+err.Error())
		return nil, dir
	}
	if err := json.Unmarshal([]byte(text), &known); err != nil {
		p.differ(file, "", "a setting has a wrong type, so mirrors were not translated: "+err.Error())
	}
	if path.IsAbs(known.DataRoot) {
		dir = path.Clean(known.DataRoot)
	}
	p.proxies(file, map[string]string{"HTTP_PROXY": known.Proxies.HTTP, "HTTPS_PROXY": known.Proxies.HTTPS, "NO_PROXY": known.Proxies.No})
	p.config.docker(file, known.Mirrors, known.Insecure)
	return settings, dir
}

// dockerContainers notes the containers, with those settings that a manifest must have.
func (p *planner) dockerContainers(dir string) {
	for i, id := range p.host.list(dir) {
		if i == maxContainers {
			p.differ(dir, "", "more containers are not listed")
			return
		}
		file := path.Join(dir, id, "config.v2.json")
		var c struct {
			Name   string
			Config struct{ Image string }
			Mounts map[string]struct{ Type, Source, Name string } `json:"MountPoints"`
		}
		if text := p.host.read(file); text == "" || json.Unmarshal([]byte(text), &c) != nil {
			continue
		}
		var from []string
		for _, target := range slices.Sorted(maps.Keys(c.Mounts)) {
			if m := c.Mounts[target]; m.Type == "bind" {
				from = add(from, m.Source)
			} else if m.Name != "" {
				from = add(from, "volume "+m.Name)
			}
		}
		what := "write a pod with the image " + strconv.Quote(c.Config.Image)
		if len(from) > 0 {
			what += ", which mounts " + strings.Join(from, ", ")
		}
		p.differ(file, strings.TrimPrefix(c.Name, "/"), what)
	}
}
