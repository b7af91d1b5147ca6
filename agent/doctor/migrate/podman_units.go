package migrate

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/islet-edge/islet/agent/doctor/unitfile"
)

// kubeUnit translates a .kube unit: its YAML becomes a manifest. Settings that have no counterpart are noted.
func (p *planner) kubeUnit(file string, settings []unitfile.Setting, user string) {
	for _, set := range settings {
		if set.Section != "Kube" {
			continue
		}
		switch set.Key {
		case "Yaml", "ConfigMap":
			p.kubeYAML(file, set.Value, user)
		case "PublishPort":
			p.differ(file, "PublishPort="+set.Value, "write hostPort beside the containerPort in the manifest")
		case "Network":
			advice := "islet has one network for pods"
			if set.Value == "host" {
				advice = "write hostNetwork: true into the manifest"
			}
			p.differ(file, "Network="+set.Value, advice)
		case "UserNS":
			p.differ(file, "UserNS="+set.Value, "write hostUsers: false into the manifest for a user namespace of the pod")
		case "AutoUpdate":
			p.differ(file, "AutoUpdate="+set.Value, "islet does not replace images by itself: see docs/bundles.md")
		case "LogDriver":
			p.differ(file, "LogDriver="+set.Value, "logs are files in /var/log/pods")
		case "SetWorkingDirectory":
		default:
			p.differ(file, set.Key, "islet has no such setting")
		}
	}
	if isRootless(user) {
		p.differ(file, "", "the unit of the user "+user+" runs without root: under islet its containers run as the users in the "+
			"manifest, and the owners of its files differ")
	}
}

// kubeYAML adds the manifest that a unit of podman names. It reads no file for a user without root.
func (p *planner) kubeYAML(unit, name, user string) {
	if isRootless(user) {
		p.differ(unit, "Yaml="+name, "review this file of the user "+user+", and copy it by hand: a manifest has the power of root")
		return
	}
	if strings.Contains(name, "%") || strings.Contains(name, "://") {
		p.differ(unit, "Yaml="+name, "copy this file by hand to /etc/kubernetes/manifests")
		return
	}
	if !path.IsAbs(name) {
		name = path.Join(path.Dir(unit), name)
	}
	text := p.host.read(name)
	if text == "" {
		p.differ(unit, "Yaml="+name, "the file could not be read")
		return
	}
	p.keep(name, "", "Kubernetes YAML of "+unit+": islet reads pods, ConfigMaps, Secrets and claims; check it")
	p.inspect(name, text)
	for line := range strings.Lines(text) {
		switch kind := strings.TrimSpace(strings.TrimPrefix(line, "kind:")); {
		case !strings.HasPrefix(line, "kind:"):
		case slices.Contains([]string{"Deployment", "DaemonSet", "Job", "StatefulSet"}, kind):
			p.differ(name, "kind: "+kind, "a node runs only pods: copy spec.template, and add a name")
		}
	}
	base := path.Base(name)
	if ext := path.Ext(base); ext != ".yaml" && ext != ".yml" && ext != ".json" {
		base += ".yaml"
	}
	p.addFile("manifests/"+base, text, name)
}

// containerAdvice is what to do about a setting of a .container unit.
const containerAdvice = `
AddDevice: see docs/devices.md
After: a pod does not wait for another unit
AutoUpdate: islet does not replace images by itself: see docs/bundles.md
GlobalArgs: islet has no such arguments
HealthCmd: write a livenessProbe
LogDriver: logs are files in /var/log/pods
Network: islet has one network for pods; for host, write hostNetwork: true
Notify: write a readinessProbe
Pod: put the container into the manifest of this pod
PodmanArgs: islet has no such arguments
Requires: a pod does not wait for another pod: write an init container
Restart: write restartPolicy into the manifest
Secret: write a Secret into the manifest
ShmSize: mount an emptyDir with medium: Memory at /dev/shm
StopTimeout: write terminationGracePeriodSeconds into the manifest
TimeoutStopSec: write terminationGracePeriodSeconds into the manifest
Tmpfs: write an emptyDir with medium: Memory
Ulimit: islet has no such setting
UserNS: write hostUsers: false into the manifest
`

// containerUnit notes the settings of a .container unit that podman generate kube does not write into the manifest.
func (p *planner) containerUnit(file string, settings []unitfile.Setting) {
	p.keep(file, "", "see the step that writes this container as a manifest; then check the manifest")
	for _, set := range settings {
		if text := lookup(containerAdvice, set.Key); text != "" {
			p.differ(file, set.Section+"."+set.Key, text)
		}
	}
}

// podmanUnits finds the services in a directory of units that run podman without a quadlet: instances of podman-kube@.service, and units
// with podman in their command. The user is empty for units of the system.
func (p *planner) podmanUnits(dir, user string, s *podmanState) {
	instances, err := fs.Glob(p.host, strings.TrimPrefix(dir, "/")+"/*.wants/podman-kube@*.service")
	if err != nil {
		return
	}
	for _, link := range instances {
		name := strings.TrimSuffix(path.Base(link), ".service")
		s.services = add(s.services, userService(user, name))
		_, escaped, _ := strings.Cut(name, "@")
		p.kubeYAML("/"+link, unescape(escaped), user)
	}
	for _, file := range p.host.filesIn(dir, ".service") {
		if isRootless(user) && p.host.linkTarget(file) != "" {
			continue // it may be a link to another file of the host
		}
		if text := p.host.read(file); strings.Contains(text, "podman") {
			p.podmanUnit(file, user, unitfile.Settings(text), s)
		}
	}
}

// podmanUnit adds a unit that runs podman in its command.
func (p *planner) podmanUnit(file, user string, settings []unitfile.Setting, s *podmanState) {
	name := strings.TrimSuffix(path.Base(file), ".service")
	inPod := false
	for _, set := range settings {
		if set.Key == "BindsTo" && strings.HasPrefix(set.Value, "pod-") { // as podman generate systemd writes it before the command
			inPod = true
		}
		words := unitfile.Words(strings.TrimLeft(set.Value, "@-:+!"))
		if set.Key != "ExecStart" || len(words) < 3 || path.Base(words[0]) != "podman" || strings.HasSuffix(name, "@") {
			continue
		}
		switch verb := strings.Join(words[1:3], " "); {
		case verb == "kube play" || verb == "play kube":
			s.services = add(s.services, userService(user, name))
			p.kubeYAML(file, words[len(words)-1], user)
			p.kubePlayFlags(file, user, words[3:len(words)-1])
		case verb == "pod start" || words[1] == "run" || words[1] == "start":
			s.services = add(s.services, userService(user, name))
			container := words[len(words)-1]
			if words[1] == "run" {
				container = runName(words)
			}
			if pod, ok := strings.CutPrefix(name, "pod-"); ok {
				container = pod
			}
			switch {
			case inPod: // the manifest of the pod has this container
			case container == "":
				p.differ(file, "ExecStart", "islet reads no units: write the container as a manifest (podman generate kube NAME)")
			default:
				s.generate(user, container, name)
			}
		}
	}
}

// runName returns the first --name in a command line of podman run, or "". Later words may be those of the container.
func runName(words []string) string {
	for i, word := range words {
		if name, ok := strings.CutPrefix(word, "--name="); ok {
			return name
		}
		if word == "--name" && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// kubePlayFlags notes the flags of podman kube play in a unit.
func (p *planner) kubePlayFlags(file, user string, words []string) {
	for _, f := range parseFlags(words) {
		switch f.name {
		case "replace", "service-container", "start", "quiet":
		case "publish":
			p.differ(file, f.String(), "write hostPort beside the containerPort in the manifest")
		case "configmap":
			p.kubeYAML(file, f.value, user)
		default:
			p.differ(file, "--"+f.name, "islet has no such setting")
		}
	}
}

// unescape returns the path that systemd-escape --path has encoded in the name of a unit.
func unescape(name string) string {
	var b strings.Builder
	if !strings.HasPrefix(name, "-") {
		b.WriteByte('/')
	}
	for i := 0; i < len(name); i++ {
		if hex, ok := strings.CutPrefix(name[i:], `\x`); ok && len(hex) >= 2 {
			if n, err := strconv.ParseUint(hex[:2], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		if name[i] == '-' {
			b.WriteByte('/')
			continue
		}
		b.WriteByte(name[i])
	}
	return b.String()
}
