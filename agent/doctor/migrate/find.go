package migrate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/islet-edge/islet/agent/doctor/unitfile"
)

const (
	saved  = "/root/before-islet"    // where the steps copy the settings to
	inbox  = "/var/lib/islet/images" // the directory of archives that islet imports
	output = "/root/for-islet"       // the directory of --write in the steps
	certs  = "/etc/containerd/certs.d"
)

// Find examines a host. The processes must not include islet's own. Find never fails: what it cannot read is listed in the report.
func Find(host *Tree, running []Process) *Report {
	p := &planner{host: host, running: running, report: Report{[]Program{}, []Note{}, []Note{}, []File{}, []Step{}, []Step{}, nil}}
	k := p.kubelet()
	p.k3s(k)
	p.podman()
	p.docker()
	if len(p.report.Found) == 0 {
		p.report.Skipped = host.skipped
		return &p.report
	}
	p.nri()
	p.registryFiles()
	p.common(k)
	for at := range phases {
		p.report.Steps = append(p.report.Steps, p.steps[at]...)
	}
	for at := phases - 1; at >= 0; at-- {
		for i := len(p.back[at]) - 1; i >= 0; i-- { // the way back undoes the last step first
			p.report.Back = append(p.report.Back, p.back[at][i])
		}
	}
	p.report.Skipped = host.skipped
	return &p.report
}

// common adds the steps that every migration has.
func (p *planner) common(k *kubelet) {
	hasDir := func(dir string) bool {
		return slices.ContainsFunc(p.report.Files, func(f File) bool { return strings.HasPrefix(f.Path, dir+"/") })
	}
	var place []string
	if hasDir("certs.d") {
		place = add(place, "mkdir -p "+certs+" && cp -rn "+output+"/certs.d/. "+certs+"/   # merge files that exist by hand")
	}
	if hasDir("manifests") || p.generates {
		place = add(place, "./islet check "+output+"/manifests && mkdir -p /etc/kubernetes/manifests && cp "+output+
			"/manifests/* /etc/kubernetes/manifests/")
	}
	if slices.ContainsFunc(p.report.Files, func(f File) bool { return f.Path == "config.json" }) {
		if p.host.exists("/var/lib/kubelet/config.json") {
			p.saveFiles("the logins for registries", "/var/lib/kubelet/config.json")
			place = add(place, "cat "+output+"/config.json   # merge it into /var/lib/kubelet/config.json by hand")
		} else {
			place = add(place, "install -D -m 600 "+output+"/config.json /var/lib/kubelet/config.json")
		}
	}
	if len(p.report.Files) > 0 {
		p.addSteps(writeStep)
	}
	if len(place) > 0 {
		p.addStep("translate>", Step{What: "put the translated files in place", Commands: place})
		p.addStep("translate<", Step{What: "remove the files that you put in place above, or restore them from " + saved})
	}
	p.giveProxy()
	option, unit := "", "islet"
	if p.asKubelet {
		option, unit = "--kubeadm ", "kubelet"
	}
	p.addSteps(commonSteps, "{option}", option, "{unit}", unit)
	manifests := ""
	if hasDir("manifests") || p.generates {
		manifests = "/etc/kubernetes/manifests"
	}
	if k != nil && k.staticPods != "" && len(p.host.filesIn(k.staticPods, ".yaml", ".yml", ".json")) > 0 {
		manifests = word(k.staticPods)
		p.addSteps(staticSteps, "{dir}", manifests)
	}
	if manifests != "" {
		p.addSteps(endSteps, "{dir}", manifests)
	}
}

// giveFlags adds the step that gives flags to islet.
func (p *planner) giveFlags(flags []flag) {
	var words []string
	note := ""
	for _, f := range flags {
		if f.name == "node-labels" || f.name == "register-with-taints" {
			note = registerNote
		}
		if f.name == "manifest-url-header" {
			f.value = "VALUE" // a secret
		}
		if text := f.String(); word(text) != text { // a shell or ISLET_ARGS would interpret it, and a stranger may have written it
			p.differ("", "--"+f.name, "write this flag into ISLET_ARGS by hand: its value has special characters")
			continue
		}
		words = add(words, f.String())
	}
	if len(words) == 0 {
		return
	}
	p.addSteps(flagStep, "{line}", word(fmt.Sprintf("ISLET_ARGS=%q", strings.Join(words, " "))), "{note}", note)
}

// serviceKind returns "systemd" or "openrc" if the host has such a service, else "".
func (p *planner) serviceKind(name string) string {
	for _, dir := range unitfile.Dirs() {
		if p.host.exists(path.Join(dir, name+".service")) {
			return "systemd"
		}
	}
	if p.host.exists("etc/init.d/" + name) {
		return "openrc"
	}
	return ""
}

// startsAtBoot reports whether a service is enabled.
func (p *planner) startsAtBoot(name string) bool {
	return p.isWanted("etc/systemd/system", name) || slices.Contains(p.host.list("etc/runlevels/default"), name)
}

// isWanted reports whether a directory of units has a link that starts a service.
func (p *planner) isWanted(units, name string) bool {
	for _, dir := range p.host.list(units) {
		if strings.HasSuffix(dir, ".wants") && slices.Contains(p.host.list(path.Join(units, dir)), name+".service") {
			return true
		}
	}
	return false
}

// word quotes a text for a shell. Names and paths of files may come from users who must not run commands as root.
func word(text string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_./:=@%+,-", c)
	}
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool { return !plain(c) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// stopServices adds the step that stops services, and the step that starts them again. Services that do not exist are omitted.
func (p *planner) stopServices(what string, names ...string) {
	var off, on []string
	for _, name := range names {
		base, socket, _ := strings.Cut(name, ".")
		switch kind := p.serviceKind(base); {
		case kind == "systemd":
			off = add(off, "systemctl disable --now "+name)
			on = add(on, "systemctl enable --now "+name)
		case kind == "openrc" && socket == "":
			off = append(off, "rc-service "+name+" stop", "rc-update del "+name)
			on = append(on, "rc-update add "+name, "rc-service "+name+" start")
		}
	}
	if len(off) == 0 {
		return
	}
	slices.Reverse(on)
	p.addStep("stop>", Step{What: what, Commands: off})
	p.addStep("stop<", Step{What: "start " + strings.Join(names, " and ") + " again", Commands: on})
}

// saveFiles adds the step that copies the files that exist.
func (p *planner) saveFiles(what string, files ...string) {
	files = slices.DeleteFunc(files, func(f string) bool { return !p.host.exists(f) })
	if len(files) == 0 {
		return
	}
	for i := range files {
		files[i] = word(strings.TrimPrefix(files[i], "/"))
	}
	p.addSteps(saveSteps, "{what}", what, "{files}", strings.Join(files, " "))
	if len(p.back[0]) == 0 {
		p.addSteps(forgetSteps)
		if p.host.exists(saved) {
			p.differ(saved, "", "copies are there, and stay: if they are not of a move that you begin again, move them away first")
		}
	}
}

// nri notes plugins of the node resource interface.
func (p *planner) nri() {
	for _, dir := range []string{"/opt/nri/plugins", "/etc/nri/conf.d"} {
		for _, name := range p.host.list(dir) {
			p.differ(path.Join(dir, name), "", "islet has no NRI: the plugin does not run")
		}
	}
}
