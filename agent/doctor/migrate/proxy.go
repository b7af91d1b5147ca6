package migrate

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/agent/doctor/unitfile"
)

const proxySteps = `
translate> give the proxy of the former programs to the service of islet
	{ echo; printf '%s\n' {lines}; } >>{file}
(islet is one process: it uses the proxy for registries and for the API server. NO_PROXY must have the hosts that are reached directly. ` +
	`A command such as islet join has the proxy of its shell
translate< take the proxy from the service of islet
	[ ! -e {file} ] || sed -i -E '/^(HTTP|HTTPS|NO)_PROXY=/d' {file}`

// unitProxies notes the proxy of a service.
func (p *planner) unitProxies(name string) {
	unit := unitfile.Read(p.host, name+".service")
	env := unit.Environment(p.host)
	where := name + ".service"
	if p.serviceKind(name) == "openrc" {
		where = "/etc/conf.d/" + name
		for _, file := range []string{where, "/etc/default/" + name} {
			unitfile.ParseShell(p.host.read(file), env)
		}
	}
	p.proxies(where, env)
}

// proxies notes the proxy in an environment. A variable in capitals is stronger, and k3s' variable for its containerd is the weakest.
func (p *planner) proxies(file string, env map[string]string) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", noProxy} {
		for _, key := range []string{name, strings.ToLower(name), "CONTAINERD_" + name} {
			if value := env[key]; value != "" {
				p.addProxy(file, key, name, value)
				break
			}
		}
	}
}

// addProxy notes a variable of a proxy. A login in it is not printed.
func (p *planner) addProxy(file, key, name, value string) {
	isPlain := !strings.Contains(value, "@") && word(value) == value
	given := valueOf(p.proxy, name)
	switch old := cmp.Or(given, valueOf(p.byHand, name)); {
	case old == nil && isPlain:
		p.keep(file, key, "a variable of islet's service, in the step that gives the proxy")
		p.proxy = append(p.proxy, flag{name, value})
	case old == nil:
		p.differ(file, key, "write "+name+" into "+p.serviceFile()+" by hand, with mode 0600: the value has a login or special characters")
		p.byHand = append(p.byHand, flag{name, value})
	case old.value == value:
	case name != noProxy:
		p.differ(file, key, "another proxy: islet has one for all")
	case given != nil && isPlain:
		p.reachDirectly(value)
	default:
		p.differ(file, key, "add these hosts to NO_PROXY in "+p.serviceFile()+" by hand")
	}
}

const noProxy = "NO_PROXY"

// valueOf returns a variable of a list, or nil.
//
//go:noinline
func valueOf(list []flag, name string) *flag {
	if i := slices.IndexFunc(list, func(f flag) bool { return f.name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// reachDirectly adds hosts, with commas between them, to NO_PROXY, if islet has a proxy. A line that is printed would replace a NO_PROXY
// that is written by hand.
func (p *planner) reachDirectly(hosts string) {
	old := valueOf(p.proxy, noProxy)
	switch {
	case hosts == "" || word(hosts) != hosts || len(p.proxy)+len(p.byHand) == 0:
	case valueOf(p.byHand, noProxy) != nil:
		p.differ("", noProxy, "write "+hosts+" into it too: the former program has reached it without the proxy")
	case old == nil:
		p.proxy = append(p.proxy, flag{noProxy, hosts})
	case !strings.Contains(","+old.value+",", ","+hosts+","):
		old.value += "," + hosts
	}
}

// hasProxy reports whether an environment has a proxy for requests to an API server.
func hasProxy(env map[string]string) bool { return env["HTTPS_PROXY"]+env["https_proxy"] != "" }

// serverOf returns the host of the API server in a kubeconfig.
func (p *planner) serverOf(kubeconfig string) string {
	var c struct {
		Clusters []struct{ Cluster struct{ Server string } }
	}
	if err := yaml.Unmarshal([]byte(p.host.read(kubeconfig)), &c); err != nil || len(c.Clusters) == 0 {
		return ""
	}
	return hostName(c.Clusters[0].Cluster.Server)
}

// hostName returns the host of a URL without the port.
func hostName(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// serviceFile returns the file with the environment of islet's service.
func (p *planner) serviceFile() string {
	if p.asKubelet {
		return "/etc/default/kubelet"
	}
	return "/etc/default/islet"
}

// giveProxy adds the step that gives the proxy to islet.
func (p *planner) giveProxy() {
	p.reachDirectly(p.direct)
	var lines []string
	for _, v := range p.proxy {
		lines = add(lines, word(v.name+"="+v.value))
	}
	if len(lines) > 0 {
		p.addSteps(proxySteps, "{lines}", strings.Join(lines, " "), "{file}", p.serviceFile())
	}
}
