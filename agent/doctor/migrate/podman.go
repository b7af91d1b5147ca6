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
	services []string // services to stop; those of users are USER/NAME
	quadlets []string // files to move away
	makes    []string // commands that write manifests of running containers
	users    []home   // users without root who have units or volumes
	volumes  []volume
}

// podman finds the units and volumes of podman on this host, and adds all that concerns them.
func (p *planner) podman() {
	var s podmanState
	dirs := []string{"/etc/containers/systemd", "/usr/share/containers/systemd", "/run/containers/systemd"}
	for _, dir := range dirs {
		p.quadletDir(dir, "", &s, 0)
	}
	p.podmanUnits("/etc/systemd/system", "", &s)
	p.podmanVolumes(home{"", "/root"}, &s)
	for _, home := range p.homes() {
		services, quadlets, volumes := len(s.services), len(s.quadlets), len(s.volumes)
		p.quadletDir(path.Join(home.dir, ".config/containers/systemd"), home.user, &s, 0)
		p.podmanUnits(path.Join(home.dir, ".config/systemd/user"), home.user, &s)
		if !isRootless(home.user) {
			continue
		}
		if p.podmanVolumes(home, &s); len(s.services) > services || len(s.quadlets) > quadlets || len(s.volumes) > volumes {
			s.users = append(s.users, home)
		}
	}
	for _, file := range p.host.filesIn("etc/systemd/user", ".service") {
		if strings.Contains(p.host.read(file), "podman") {
			p.differ(file, "", "it runs in the sessions of all users, and was not read: write manifests by hand")
		}
	}
	monitors := p.process("conmon") != 0 && p.process("crio") == 0 // CRI-O starts the same program
	if len(s.services)+len(s.quadlets)+len(s.volumes) == 0 && !monitors {
		return
	}
	p.found("podman", strconv.Itoa(len(s.services))+" services of containers", "conmon", "podman")
	p.claims(s.volumes)
	p.authFiles()
	const file = "/etc/containers/containers.conf"
	env := map[string]string{}
	for _, assignment := range p.podmanEngine(file).Env {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
	}
	p.proxies(file, env)
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
			s.quadlets = add(s.quadlets, file)
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
		s.services = add(s.services, userService(user, value("ServiceName", base)))
		p.kubeUnit(file, settings, user)
	case ".container":
		s.services = add(s.services, userService(user, value("ServiceName", base)))
		p.containerUnit(file, settings)
		if value("Pod", "") == "" { // the manifest of a pod has its containers
			s.generate(user, value("ContainerName", "systemd-"+base), base)
		}
	case ".pod":
		s.services = add(s.services, userService(user, value("ServiceName", base+"-pod")))
		s.generate(user, value("PodName", "systemd-"+base), base)
		p.differ(file, "", "islet reads no units of podman: see the step that writes its pod as a manifest")
	case ".volume":
		dir := "manifests"
		if isRootless(user) {
			dir = "users/" + user
		}
		p.differ(file, "", "the claim of a manifest: see "+dir+"/claims.yaml of --write")
	case ".network":
		p.differ(file, "", "islet has one network for pods, and no names of other pods in it: put containers that belong together into "+
			"one pod")
	case ".image":
		p.differ(file, "", "islet pulls an image when a pod needs it")
	case ".build":
		p.differ(file, "", "islet builds no images: build it elsewhere, and copy the archive to "+inbox)
	}
}

// generate adds the command that writes a container or a pod of podman as a manifest. A manifest of a user without root must be reviewed,
// so no step puts it in place.
func (s *podmanState) generate(user, name, base string) {
	dir := output + "/manifests"
	if isRootless(user) {
		dir = output + "/users/" + user
		if line := "mkdir -p " + word(dir); !slices.Contains(s.makes, line) {
			s.makes = add(s.makes, line)
		}
	}
	s.makes = add(s.makes, runAs(user)+"podman generate kube "+word(name)+" >"+word(dir+"/"+base+".yaml"))
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

// authFiles notes the logins of podman, which have the format of docker.
func (p *planner) authFiles() {
	for _, file := range []string{"/run/containers/0/auth.json", "/root/.config/containers/auth.json", "/root/.docker/config.json"} {
		if p.host.exists(file) {
			p.keep(file, "", "logins at registries: copy it to /var/lib/kubelet/config.json, mode 0600")
		}
	}
}

// A control is a service of podman.
type control struct{ systemctl, unit string }

// controlOf returns the command for a service of the system, or of a user.
func controlOf(name string) control {
	if user, unit, isUser := strings.Cut(name, "/"); isUser {
		return control{"systemctl --user --machine=" + word(user) + "@ ", unit}
	}
	return control{"systemctl ", name}
}

// bootServices returns the services that start at boot by a link, which quadlets do not need.
func (p *planner) bootServices(s *podmanState) (names []string) {
	for _, name := range add(s.services, "podman-restart") {
		if p.startsAtBoot(name) {
			names = add(names, name)
		}
	}
	for _, u := range s.users {
		for _, name := range add(s.services, u.user+"/podman-restart") {
			unit, isOwn := strings.CutPrefix(name, u.user+"/")
			if isOwn && p.isWanted(u.dir+"/.config/systemd/user", unit) {
				names = add(names, name)
			}
		}
	}
	return names
}

func (p *planner) podmanSteps(s *podmanState) {
	p.saveFiles("podman", "/etc/containers")
	p.generates = true
	p.addStep("images>", Step{"write the containers as manifests, while they run",
		append([]string{"mkdir -p " + output + "/manifests"}, append(s.makes, "podman ps --pod")...), "write each container that no unit " +
			"starts too: podman generate kube NAME >" + output + "/manifests/NAME.yaml. Review each manifest: it has the power of root. " +
			"Manifests of users without root are in " + output + "/users: copy them by hand"})
	p.exportImages("podman", podmanExport, "short names such as web:1 are localhost/web:1 in podman, and the manifest must say so")
	note := "units of podman are made from their files, so disable has no effect on them"
	if len(s.users) > 0 {
		note += ". sudo is a package; for a user whose shell is nologin use sudo -Hu USER env -C HOME instead of sudo -iu USER"
	}
	stop, start := []string{"podman stop --all"}, []string{"podman start --all --filter restart-policy=always"}
	for _, u := range s.users {
		export := strings.NewReplacer("{name}", "podman", inbox+"/", "").Replace(podmanExport)
		p.addSteps(rootlessSteps, "{user}", word(u.user), "{export}", word(export), "{home}", word(u.dir))
		stop = add(stop, runAs(u.user)+stop[0])
		start = add(start, runAs(u.user)+start[0])
	}
	var off, on []string
	reload := []string{"systemctl daemon-reload"}
	for _, name := range s.services {
		c := controlOf(name)
		off = add(off, c.systemctl+"stop -- "+word(c.unit))
		on = add(on, c.systemctl+"start -- "+word(c.unit))
		if line := c.systemctl + "daemon-reload"; !slices.Contains(reload, line) {
			reload = add(reload, line)
		}
	}
	for _, file := range s.quadlets {
		off = add(off, "mv "+word(file)+" "+word(file+".off"))
		on = slices.Insert(on, 0, "mv "+word(file+".off")+" "+word(file))
	}
	for _, name := range p.bootServices(s) {
		c := controlOf(name)
		off = add(off, c.systemctl+"disable -- "+word(c.unit))
		on = add(on, c.systemctl+"enable -- "+word(c.unit))
	}
	p.addStep("stop>", Step{"stop the services and all other containers, and keep them from starting at boot",
		slices.Concat(off, reload, stop), note})
	p.addStep("stop<", Step{"start the services again", append(slices.Insert(on, len(s.quadlets), reload...), start...),
		"start other containers that no unit starts with podman start NAME"})
	p.addSteps(podmanNotes)
}
