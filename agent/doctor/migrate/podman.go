package migrate

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/islet-edge/islet/agent/doctor/unitfile"
)

// podmanState is what podman runs on this host.
type podmanState struct {
	services []string // services to stop
	quadlets []string // files to move away
	rootless bool
	makes    []string // commands that write manifests of running containers
}

// podman finds the units of podman on this host, and adds all that concerns them.
func (p *planner) podman() {
	var s podmanState
	dirs := []string{"/etc/containers/systemd", "/usr/share/containers/systemd", "/run/containers/systemd"}
	for _, dir := range dirs {
		p.quadletDir(dir, "", &s, 0)
	}
	for _, home := range p.homes() {
		p.quadletDir(path.Join(home.dir, ".config/containers/systemd"), home.user, &s, 0)
	}
	p.podmanUnits(&s)
	volumes := p.host.list(podmanVolumes)
	volumes = slices.DeleteFunc(volumes, func(name string) bool { return !p.host.exists(path.Join(podmanVolumes, name, "_data")) })
	monitors := p.process("conmon") != 0 && p.process("crio") == 0 // CRI-O starts the same program
	if len(s.services)+len(s.quadlets)+len(volumes) == 0 && !monitors {
		return
	}
	p.found("podman", strconv.Itoa(len(s.services))+" services of containers", "conmon", "podman")
	p.claims(volumes)
	p.authFiles()
	p.podmanSteps(&s)
}

// A home is the home directory of a user who may have units of podman.
type home struct{ user, dir string }

// homes returns the home directories of root and of persons.
func (p *planner) homes() (list []home) {
	for line := range strings.Lines(p.host.read("etc/passwd")) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 7 || !path.IsAbs(fields[5]) || len(list) >= maxEntries {
			continue
		}
		if id, err := strconv.Atoi(fields[2]); err == nil && (id == 0 || id >= 1000 && id < 60000) {
			list = append(list, home{fields[0], path.Clean(fields[5])})
		}
	}
	return list
}

// maxQuadletDepth is the maximum depth of directories with units of podman.
const maxQuadletDepth = 4

// quadletDir adds the units of podman in a directory. The user is empty for units of the system.
func (p *planner) quadletDir(dir, user string, s *podmanState, depth int) {
	for _, name := range p.host.list(dir) {
		file := path.Join(dir, name)
		base, kind := strings.TrimSuffix(name, path.Ext(name)), path.Ext(name)
		switch info, err := fs.Stat(p.host, file); {
		case err != nil:
		case name == "users" && user == "" && depth == 0:
			p.differ(file, "", "units of the sessions of users are not read: review them, and write manifests by hand")
		case kind != "" && strings.Contains(quadletKinds, kind+" "):
			if isRootless(user) && p.host.linkTarget(file) != "" {
				p.differ(file, "", "a link of the user "+user+": it is not read")
				continue
			}
			s.quadlets = append(s.quadlets, file)
			s.rootless = s.rootless || isRootless(user)
			p.quadlet(file, base, kind, user, s)
		case kind == ".d":
			p.differ(file, "", "drop-in files of units of podman are not read")
		case info.IsDir() && depth < maxQuadletDepth:
			p.quadletDir(file, user, s, depth+1)
		}
	}
}

// quadletKinds are the extensions of podman's units.
const quadletKinds = ".kube .container .pod .volume .network .image .build "

func (p *planner) quadlet(file, base, kind, user string, s *podmanState) {
	settings := unitfile.Settings(p.host.read(file))
	value := func(key, missing string) string {
		for _, set := range settings {
			if set.Key == key {
				missing = set.Value
			}
		}
		return missing
	}
	switch kind {
	case ".kube":
		s.services = append(s.services, userService(user, value("ServiceName", base)))
		p.kubeUnit(file, settings, user)
	case ".container":
		s.services = append(s.services, userService(user, value("ServiceName", base)))
		p.containerUnit(file, settings)
		if value("Pod", "") == "" { // the manifest of a pod has its containers
			s.generate(user, value("ContainerName", "systemd-"+base), base)
		}
	case ".pod":
		s.services = append(s.services, userService(user, value("ServiceName", base+"-pod")))
		s.generate(user, value("PodName", "systemd-"+base), base)
		p.differ(file, "", "islet reads no units of podman: see the step that writes its pod as a manifest")
	case ".volume":
		p.differ(file, "", "the claim of a manifest: see manifests/claims.yaml of --write")
	case ".network":
		p.differ(file, "", "islet has one network for pods, and no names of other pods in it: put containers that belong together into "+
			"one pod")
	case ".image":
		p.differ(file, "", "islet pulls an image when a pod needs it")
	case ".build":
		p.differ(file, "", "islet builds no images: build it elsewhere, and copy the archive to "+inbox)
	}
}

// generate adds the command that writes a container or a pod of podman as a manifest.
func (s *podmanState) generate(user, name, base string) {
	s.makes = append(s.makes, runAs(user)+"podman generate kube "+word(name)+" >"+word(output+"/manifests/"+base+".yaml"))
}

// isRootless reports whether the units of a user run without root. The user is empty for units of the system.
func isRootless(user string) bool { return user != "" && user != "root" }

func userService(user, name string) string {
	if user == "" {
		return name
	}
	return user + "/" + name
}

func runAs(user string) string {
	if !isRootless(user) {
		return ""
	}
	return "sudo -iu " + word(user) + " "
}

// kubeUnit translates a .kube unit: its YAML becomes a manifest. Settings that have no counterpart are noted.
func (p *planner) kubeUnit(file string, settings []unitfile.Setting, user string) {
	for _, set := range settings {
		if set.Section != "Kube" {
			continue
		}
		switch set.Key {
		case "Yaml", "ConfigMap":
			if isRootless(user) {
				p.differ(file, set.Key+"="+set.Value, "review this file of the user "+user+", and copy it by hand: a manifest has the "+
					"power of root")
				continue
			}
			p.kubeYAML(file, set.Value)
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

// kubeYAML adds the manifest that a unit of podman names.
func (p *planner) kubeYAML(unit, name string) {
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

// podmanUnits finds services that run podman without a quadlet: instances of podman-kube@.service, and units with podman in their command.
func (p *planner) podmanUnits(s *podmanState) {
	instances, err := fs.Glob(p.host, "etc/systemd/system/*.wants/podman-kube@*.service")
	if err != nil {
		return
	}
	for _, link := range instances {
		name := strings.TrimSuffix(path.Base(link), ".service")
		s.services = append(s.services, name)
		_, escaped, _ := strings.Cut(name, "@")
		p.kubeYAML("/"+link, unescape(escaped))
	}
	for _, file := range p.host.filesIn("etc/systemd/system", ".service") {
		if text := p.host.read(file); strings.Contains(text, "podman") {
			p.podmanUnit(file, unitfile.Settings(text), s)
		}
	}
}

// podmanUnit adds a unit that runs podman in its command.
func (p *planner) podmanUnit(file string, settings []unitfile.Setting, s *podmanState) {
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
			s.services = append(s.services, name)
			p.kubeYAML(file, words[len(words)-1])
			p.kubePlayFlags(file, words[3:len(words)-1])
		case verb == "pod start" || words[1] == "run" || words[1] == "start":
			s.services = append(s.services, name)
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
				s.generate("", container, name)
			}
		}
	}
}

// runName returns the first --name in a command line of podman run, or "". Later words may belong to the container.
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
func (p *planner) kubePlayFlags(file string, words []string) {
	for _, f := range parseFlags(words) {
		switch f.name {
		case "replace", "service-container", "start", "quiet":
		case "publish":
			p.differ(file, f.String(), "write hostPort beside the containerPort in the manifest")
		case "configmap":
			p.kubeYAML(file, f.value)
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

// authFiles notes the logins of podman, which have the format of docker.
func (p *planner) authFiles() {
	for _, file := range []string{"/run/containers/0/auth.json", "/root/.config/containers/auth.json", "/root/.docker/config.json"} {
		if p.host.exists(file) {
			p.keep(file, "", "logins at registries: copy it to /var/lib/kubelet/config.json, mode 0600")
		}
	}
}

func (p *planner) podmanSteps(s *podmanState) {
	p.saveFiles("podman", "/etc/containers")
	p.generates = true
	p.addStep("images>", Step{"write the containers as manifests, while they run",
		append([]string{"mkdir -p " + output + "/manifests"}, append(s.makes, "podman ps --pod")...), "write each container that no unit " +
			"starts too: podman generate kube NAME >" + output + "/manifests/NAME.yaml. Review each manifest: it has the power of root"})
	p.exportImages("podman", podmanExport, "short names such as web:1 are localhost/web:1 in podman, and the manifest must say so")
	if s.rootless {
		export := strings.NewReplacer("{name}", "podman", inbox+"/", "").Replace(podmanExport)
		p.addSteps(rootlessSteps, "{export}", word(export))
	}
	var off, on []string
	for _, name := range s.services {
		user, unit, isUser := strings.Cut(name, "/")
		ctl := "systemctl "
		if isUser {
			ctl = "systemctl --user --machine=" + word(user) + "@ "
		} else {
			unit = name
		}
		off, on = append(off, ctl+"stop -- "+word(unit)), append(on, ctl+"start -- "+word(unit))
	}
	for _, file := range s.quadlets {
		off = append(off, "mv "+word(file)+" "+word(file+".off"))
		on = slices.Insert(on, 0, "mv "+word(file+".off")+" "+word(file))
	}
	for _, name := range append(s.services, "podman-restart") {
		if p.startsAtBoot(name) {
			off, on = append(off, "systemctl disable -- "+word(name)), append(on, "systemctl enable -- "+word(name))
		}
	}
	reload := []string{"systemctl daemon-reload"}
	for _, name := range s.services {
		user, _, isUser := strings.Cut(name, "/")
		if line := "systemctl --user --machine=" + word(user) + "@ daemon-reload"; isUser && !slices.Contains(reload, line) {
			reload = append(reload, line)
		}
	}
	p.addStep("stop>", Step{"stop the services and all other containers, and keep them from starting at boot",
		append(append(off, reload...), "podman stop --all"), "units of podman are made from their files, so disable has no effect on them"})
	p.addStep("stop<", Step{"start the services again", append(slices.Insert(on, len(s.quadlets), reload...),
		"podman start --all --filter restart-policy=always"), "start other containers that no unit starts with podman start NAME"})
	p.addSteps(podmanNotes)
}
