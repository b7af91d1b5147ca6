package migrate

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/agent/doctor/unitfile"
)

// A k3sSetting is a setting of k3s in a configuration file, on the command line of its service, or in the environment of its service.
type k3sSetting struct {
	file, key string // where the setting is
	name      string // of the flag, without dashes; empty if another file has replaced the setting
	value     string // the values of a list are on separate lines
}

// findK3s finds the service that starts k3s, whose name the installer of k3s can change. It prefers an agent. It returns false if this host
// has no k3s.
func (p *planner) findK3s(k *k3sFiles) bool {
	for _, dir := range append(unitfile.Dirs(), "etc/init.d") {
		for _, base := range p.host.list(dir) {
			name, isUnit := strings.CutSuffix(base, ".service")
			if !strings.HasPrefix(name, "k3s") || isUnit == (dir == "etc/init.d") || k.service != "" && (k.isAgent || name == k.unit) {
				continue
			}
			found := k3sFiles{unit: name, service: path.Join("/", dir, base), env: map[string]string{}, isAgent: name == "k3s-agent"}
			words := p.k3sCommand(&found, isUnit)
			i := slices.IndexFunc(words, func(w string) bool { return path.Base(w) == "k3s" }) + 1
			if i > 0 && i < len(words) && (words[i] == "agent" || words[i] == "server") {
				found.isAgent = words[i] == "agent"
				found.line, found.isKnown = parseFlags(joinArguments(words[i+1:])), true
			} else if name != "k3s" && name != "k3s-agent" {
				continue // a service beside k3s
			}
			if k.service == "" || found.isAgent {
				*k = found
			}
		}
	}
	switch {
	case k.service != "":
	case p.process("k3s-agent") != 0:
		k.unit, k.isAgent = "k3s-agent", true
	case p.process("k3s-server", "k3s") != 0:
		k.unit = "k3s"
	default:
		return false
	}
	return true
}

// joinArguments joins the flags for arguments of the kubelet and of kube-proxy with their values, which may begin with a dash.
func joinArguments(words []string) []string {
	return strings.Split(strings.ReplaceAll(strings.Join(words, "\n"), "-arg\n", "-arg="), "\n")
}

// k3sCommand returns the command line of a service, and reads the environment of the service.
func (p *planner) k3sCommand(k *k3sFiles, isUnit bool) []string {
	if isUnit {
		unit := unitfile.Read(p.host, k.unit+".service")
		k.env = unit.Environment(p.host)
		return unitfile.Expand(unitfile.Words(unit.Command), k.env)
	}
	script := map[string]string{}
	unitfile.ParseShell(p.host.read(k.service), script)
	for _, file := range []string{"etc/conf.d/" + k.unit, "etc/environment", "etc/rancher/k3s/" + k.unit + ".env"} {
		unitfile.ParseShell(p.host.read(file), k.env)
	}
	words := unitfile.ShellWords(script["command_args"])
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, ">") }); i >= 0 {
		words = words[:i]
	}
	return append([]string{path.Base(script["command"])}, words...)
}

// k3sAliases are the names of k3s' flags that have a short name, and those of variables that are named otherwise than the flag.
const k3sAliases = `
c: config
d: data-dir
i: node-ip
s: server
t: token
url: server
config-file: config
`

// k3sLists are the flags of islet that have the values of all of k3s' settings.
const k3sLists = "node-ip node-labels register-with-taints "

// add adds a setting. The name may be a short one.
//
//go:noinline
func (k *k3sFiles) add(file, key, name, value string) {
	if long := lookup(k3sAliases, name); long != "" {
		name = long
	}
	k.settings = append(k.settings, k3sSetting{file, key, name, value})
}

// k3sSettings reads the settings of k3s. A later one is stronger.
func (p *planner) k3sSettings(k *k3sFiles) {
	config := "/etc/rancher/k3s/config.yaml"
	for _, f := range append(k.line, flag{"config", k.env["K3S_CONFIG_FILE"]}) {
		if (f.name == "config" || f.name == "c") && f.value != "" {
			config = f.value
			if !p.host.exists(config) {
				p.differ(config, "", "k3s reads its settings from there: this report lacks them")
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(k.env)) {
		if name, ok := strings.CutPrefix(key, "K3S_"); ok && k.env[key] != "" {
			k.add(k.service, key, strings.ReplaceAll(strings.ToLower(name), "_", "-"), k.env[key])
		}
	}
	p.k3sConfig(k, config)
	for _, file := range p.host.filesIn(config+".d", ".yaml", ".yml") {
		p.k3sConfig(k, file)
	}
	for _, f := range k.line {
		if f.value == "" {
			f.value = "true"
		}
		k.add(k.service, "--"+f.name, f.name, f.value)
	}
}

// k3sConfig reads a configuration file. A key replaces that of an earlier file, unless it ends with +.
func (p *planner) k3sConfig(k *k3sFiles, file string) {
	var set map[string]any
	if err := yaml.Unmarshal([]byte(p.host.read(file)), &set); err != nil {
		p.differ(file, "", "the file is not valid, and was not read: "+err.Error())
		return
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		name, isMore := strings.CutSuffix(key, "+")
		values, ok := set[key].([]any)
		if !ok {
			values = []any{set[key]}
		}
		var lines []string
		for _, v := range values {
			lines = add(lines, fmt.Sprint(v))
		}
		before := len(k.settings)
		k.add(file, key, name, strings.Join(lines, "\n"))
		for i := range k.settings[:before] {
			if k.settings[i].name == k.settings[before].name && !isMore {
				k.settings[i].name = ""
			}
		}
	}
}

// k3sApply translates the settings of k3s.
func (p *planner) k3sApply(k *k3sFiles) {
	p.k3sSettings(k)
	for i, s := range k.settings {
		value := strings.ReplaceAll(s.value, "\n", ",")
		switch {
		case s.name == "" || s.name == "config":
			continue
		case s.name == "server":
			k.url = value
		case s.name == "data-dir" && path.IsAbs(value):
			k.dir = path.Clean(value)
		case s.name == "private-registry":
			p.config.k3sFile = value
		case s.name == "disable-default-registry-endpoint":
			p.config.noDefault = value == "true"
		case s.name == "flannel-iface":
			k.hasIface = true
		case s.name == "node-external-ip":
			k.external += value + ","
		case s.name == "kubelet-arg":
			p.k3sArguments(k, s)
			continue
		case lookup(k3sFlags, s.name) != "":
			k.setFlag(lookup(k3sFlags, s.name), value)
			p.keep(s.file, s.key, isFlag)
			continue
		}
		if i < maxKeys {
			p.differ(s.file, s.key, cmp.Or(lookup(k3sAdvice, s.name), "islet has no such setting"))
		}
	}
	if k.service == "" {
		p.differ("", k.unit, "the service that starts k3s was not found: look for flags and variables of k3s by hand")
	} else if !k.isKnown {
		p.differ(k.service, "", "the command line was not read: look for flags of k3s in it")
	}
	p.k3sNode(k)
}

// setFlag sets a flag of islet, or adds a value to a flag that has a list.
func (k *k3sFiles) setFlag(name, value string) {
	i := slices.IndexFunc(k.flags, func(f flag) bool { return f.name == name })
	switch {
	case i < 0:
		k.flags = append(k.flags, flag{name, value})
	case strings.Contains(k3sLists, name+" "):
		k.flags[i].value += "," + value
	default:
		k.flags[i].value = value
	}
}

// k3sNode sets the name of the node in its certificate, which has the suffix of --with-node-id too, unless it is the name of the host.
// With --flannel-iface, k3s has chosen the addresses of this interface, which are in the serving certificate.
func (p *planner) k3sNode(k *k3sFiles) {
	has := func(name string) bool {
		return slices.ContainsFunc(k.flags, func(f flag) bool { return f.name == name })
	}
	file := path.Join(k.dir, "agent/client-kubelet.crt")
	if c := p.certificate(file); c != nil {
		name, ok := strings.CutPrefix(c.Subject.CommonName, "system:node:")
		host := strings.ToLower(strings.TrimSpace(p.host.read("etc/hostname")))
		if ok && (has("hostname-override") || name != host) {
			k.setFlag("hostname-override", name)
			p.keep(file, "name of the node", isFlag)
		}
	}
	file = path.Join(k.dir, "agent/serving-kubelet.crt")
	if c := p.certificate(file); c != nil && k.hasIface && !has("node-ip") {
		for _, ip := range c.IPAddresses {
			address, ok := netip.AddrFromSlice(ip)
			if address = address.Unmap(); ok && !address.IsLoopback() && !strings.Contains(","+k.external, ","+address.String()+",") {
				k.setFlag("node-ip", address.String())
			}
		}
		p.keep(file, "addresses of the node", isFlag)
	}
}

// certificate returns the first certificate in a file. It returns nil if the file has none.
func (p *planner) certificate(file string) *x509.Certificate {
	block, _ := pem.Decode([]byte(p.host.read(file)))
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return c
}
