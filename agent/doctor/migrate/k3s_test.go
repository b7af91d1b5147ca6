package migrate

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestKillall checks that the report names the script of k3s only while islet does not run, because the script deletes the volumes of
// islet's pods too.
func TestKillall(t *testing.T) {
	for _, runs := range []bool{false, true} {
		tree := recorded(t, "k3s-agent")
		if runs {
			put(t, tree.root, "run/islet/islet.sock", "")
		}
		var commands []string
		for _, s := range Find(tree, nil).Steps {
			commands = append(commands, s.Commands...)
		}
		text := strings.Join(commands, "\n")
		if strings.Contains(text, "killall") == runs || strings.Contains(text, "reboot") != runs {
			t.Errorf("islet runs: %v\n%s", runs, text)
		}
	}
}

// inConfig, onCommandLine, inEnvironment and withOpenRC write settings of a k3s agent, as its documentation and its installer do.
func inConfig(t *testing.T, root string, settings [][2]string) {
	text, lists := "", map[string]string{}
	for _, s := range settings {
		lists[s[0]] += fmt.Sprintf("- %q\n", s[1])
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		value := "\n" + lists[name]
		if strings.Count(value, "\n- ") == 1 && name != "kubelet-arg" {
			value = " " + strings.Trim(value[2:], " \n")
		}
		text += name + ":" + value + "\n"
	}
	put(t, root, "etc/rancher/k3s/config.yaml", text)
	put(t, root, "etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent")
}

func lineOf(settings [][2]string) (line string) {
	line = "agent \\\n"
	for i, s := range settings {
		switch {
		case s[1] == "true":
			line += fmt.Sprintf("\t'--%s' \\\n", s[0])
		case i%2 == 0:
			line += fmt.Sprintf("\t'--%s' \\\n\t'%s' \\\n", s[0], s[1])
		default:
			line += fmt.Sprintf("\t'--%s=%s' \\\n", s[0], s[1])
		}
	}
	return line
}

func onCommandLine(t *testing.T, root string, settings [][2]string) {
	put(t, root, "etc/systemd/system/k3s-agent.service", "[Service]\nEnvironmentFile=-/etc/default/%N\nExecStart=/usr/local/bin/k3s \\\n    "+
		lineOf(settings))
}

func withOpenRC(t *testing.T, root string, settings [][2]string) {
	put(t, root, "etc/init.d/k3s-agent", "#!/sbin/openrc-run\nname=k3s-agent\ncommand=\"/usr/local/bin/k3s\"\ncommand_args=\""+lineOf(settings)+
		"    >>/var/log/k3s-agent.log 2>&1\"\nset -o allexport\nif [ -f /etc/rancher/k3s/k3s-agent.env ]; then . /etc/rancher/k3s/k3s-agent.env; fi")
}

func environmentOf(settings [][2]string) (text string) {
	for _, s := range settings {
		name := strings.ToUpper(strings.ReplaceAll(s[0], "-", "_"))
		if name == "SERVER" {
			name = "URL"
		}
		text += fmt.Sprintf("K3S_%s='%s'\n", name, s[1])
	}
	return text
}

func inEnvironment(t *testing.T, root string, settings [][2]string) {
	put(t, root, "etc/systemd/system/k3s-agent.service", "[Service]\nEnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/etc/sysconfig/%N\n"+
		"ExecStart=/usr/local/bin/k3s agent")
	put(t, root, "etc/sysconfig/k3s-agent", environmentOf(settings[:1]))
	put(t, root, "etc/default/k3s-agent", environmentOf(settings[1:]))
}

func inOpenRCEnvironment(t *testing.T, root string, settings [][2]string) {
	withOpenRC(t, root, nil)
	put(t, root, "etc/rancher/k3s/k3s-agent.env", environmentOf(settings))
}

// certified writes a certificate.
func certified(t *testing.T, root, file, name string, ips ...string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}}
	for _, ip := range ips {
		c.IPAddresses = append(c.IPAddresses, net.ParseIP(ip))
	}
	der, err := x509.CreateCertificate(nil, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// TestK3sSources checks that the report about a k3s agent does not depend on the place of its settings: the configuration file, the command
// line or the environment, with systemd or OpenRC.
func TestK3sSources(t *testing.T) {
	type source func(t *testing.T, root string, settings [][2]string)
	for _, c := range []struct {
		settings [][2]string
		sources  []source
		want     []string // in the steps
	}{
		{[][2]string{{"server", "https://192.0.2.1:6443"}, {"token", "K10secret"}, {"node-name", "shop"}, {"data-dir", "/mnt/ssd/k3s"},
			{"node-ip", "192.0.2.7"}, {"node-label", "site=roof"}, {"node-label", "a=b"}, {"node-taint", "x=y:NoSchedule"},
			{"kubelet-arg", "max-pods=20"}, {"kubelet-arg", "--no-such-flag=1"}, {"kubelet-arg", "--v=3"}, {"private-registry", "/etc/my.yaml"},
			{"resolv-conf", "/etc/my.conf"}, {"protect-kernel-defaults", "true"}, {"disable-default-registry-endpoint", "true"},
			{"snapshotter", "native"}, {"flannel-conf", "/etc/flannel.json"}}, []source{inConfig, onCommandLine, withOpenRC},
			[]string{"join --k3s https://192.0.2.1:6443 --token-file token --node-name=shop --node-ip=192.0.2.7",
				"--hostname-override=shop --max-pods=20 --node-ip=192.0.2.7 --node-labels=site=roof,a=b --protect-kernel-defaults=true " +
					"--register-with-taints=x=y:NoSchedule --resolv-conf=/etc/my.conf --v=3"}},
		{[][2]string{{"server", "https://192.0.2.1:6443"}, {"token", "K10secret"}, {"node-name", "shop"}, {"data-dir", "/mnt/ssd/k3s"},
			{"resolv-conf", "/etc/my.conf"}, {"selinux", "true"}, {"lb-server-port", "7000"}},
			[]source{inConfig, onCommandLine, withOpenRC, inEnvironment, inOpenRCEnvironment},
			[]string{"join --k3s https://192.0.2.1:6443 --token-file token --node-name=shop", "--resolv-conf=/etc/my.conf"}},
	} {
		var first, firstNotes []string
		for i, write := range c.sources {
			root := t.TempDir()
			write(t, root, c.settings)
			put(t, root, "mnt/ssd/k3s/agent/pod-manifests/a.yaml", "kind: Pod")
			put(t, root, "etc/my.yaml", "mirrors: {docker.io: {endpoint: ['https://mirror.example']}}")
			r := Find(NewTree(root), nil)
			checkOutput(t, r)
			var steps, notes []string
			for _, s := range r.Steps {
				if !strings.Contains(s.What, "settings of k3s") && s.What != "stop k3s" {
					steps = append(steps, s.Commands...)
				}
			}
			for _, n := range slices.Concat(r.Kept, r.Differs) {
				if !slices.Contains(notes, n.What) {
					notes = append(notes, n.What)
				}
			}
			for _, f := range r.Files {
				steps = append(steps, f.Path, f.content)
			}
			slices.Sort(notes)
			for i, line := range steps { // the order of the flags is that of the source
				words := strings.Fields(strings.NewReplacer("'", "", `"`, "", ";", "").Replace(line))
				slices.Sort(words)
				steps[i] = strings.Join(words, " ")
			}
			for _, want := range c.want {
				words := strings.Fields(want)
				if !slices.ContainsFunc(steps, func(line string) bool {
					return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
				}) {
					t.Errorf("source %d: no %s", i, want)
				}
			}
			inOrder(t, r.Steps, []string{"ISLET_ARGS", "islet join"}) // it compares the flags
			if i == 0 {
				first, firstNotes = steps, notes
			} else if !slices.Equal(first, steps) || !slices.Equal(firstNotes, notes) {
				t.Errorf("source %d: %q, %q, want %q, %q", i, steps, notes, first, firstNotes)
			}
		}
	}
}

// TestK3sKubelet checks that no argument of the kubelet in k3s becomes a flag that overrides the settings of islet join.
func TestK3sKubelet(t *testing.T) {
	root := t.TempDir()
	onCommandLine(t, root, [][2]string{{"kubelet-arg", "config=/etc/k/kubelet.yaml"}, {"kubelet-arg", "config-dir=/etc/k/drop"},
		{"kubelet-arg", "kubeconfig=/x"}, {"kubelet-arg", "client-ca-file=/x"}, {"kubelet-arg", "tls-cert-file=/x"}, {"kubelet-arg", "cluster-dns=169.254.20.10"}})
	const kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	put(t, root, "etc/k/kubelet.yaml", kind+"maxPods: 20\nfieldOfTomorrow: 1")
	put(t, root, "etc/k/drop/1.conf", kind+"maxPods: 30")
	r := Find(NewTree(root), nil)
	var differs, kept []string
	for _, n := range r.Differs {
		differs = append(differs, n.File+"|"+n.Key)
	}
	for _, n := range r.Kept {
		kept = append(kept, n.File)
	}
	const unit = "/etc/systemd/system/k3s-agent.service|kubelet-arg "
	contains(t, "different", differs, []string{unit + "config", unit + "config-dir", unit + "kubeconfig", unit + "client-ca-file", unit + "tls-cert-file",
		"/etc/k/kubelet.yaml|fieldOfTomorrow"})
	contains(t, "kept", kept, []string{"/etc/k/kubelet.yaml", "/etc/k/drop/1.conf"})
	inOrder(t, r.Steps, []string{`"--pod-manifest-path=/etc/kubernetes/manifests --cluster-dns=169.254.20.10"`, "./islet join"})
}

// TestK3sShims checks that the commands of k3s get the data directory of the node, and that the check after the script finds the shims of
// this directory, but not itself in the command line of a shell.
func TestK3sShims(t *testing.T) {
	for dir, env := range map[string]string{"/var/lib/rancher/k3s": "", "/mnt/my ssd/k3s": "K3S_DATA_DIR='/mnt/my ssd/k3s' "} {
		root := t.TempDir()
		onCommandLine(t, root, [][2]string{{"data-dir", dir}})
		var commands []string
		for _, s := range Find(NewTree(root), nil).Steps {
			commands = append(commands, s.Commands...)
		}
		i := slices.Index(commands, env+"k3s-killall.sh")
		if i < 0 || !slices.Contains(commands, env+"k3s ctr images export /var/lib/islet/images/k3s.tar $("+env+"k3s ctr images ls -q | grep -v sha256:)") {
			t.Fatalf("%s: %q", dir, commands)
		}
		pattern := regexp.MustCompile(strings.Trim(strings.TrimPrefix(commands[i+1], "! pgrep -af "), "'"))
		for line, want := range map[string]bool{
			dir + "/data/0a1b/bin/containerd-shim-runc-v2 -namespace k8s.io": true, "/usr/bin/containerd-shim-runc-v2": false,
			"sh -c " + commands[i+1]: false,
		} {
			if pattern.MatchString(line) != want {
				t.Errorf("%s: %s", line, pattern)
			}
		}
	}
}

// TestK3sNode checks that the report names the node as its certificate does, and that the address is that of the interface that k3s uses.
func TestK3sNode(t *testing.T) {
	for name, c := range map[string]struct {
		config, node string
		ips          []string
		join         string // the flags of islet join after the token
	}{
		"name of the host":   {node: "edge", ips: []string{"192.0.2.7"}},
		"another name":       {node: "shop-7f3a", join: " --node-name=shop-7f3a"},
		"with the node's ID": {config: "node-name: shop\nwith-node-id: true", node: "shop-7f3a", join: " --node-name=shop-7f3a"},
		"an interface": {config: "flannel-iface: eth1\nnode-external-ip: 198.51.100.7", node: "edge",
			ips: []string{"127.0.0.1", "::1", "192.0.2.7", "2001:db8::7", "198.51.100.7"}, join: " --node-ip=192.0.2.7,2001:db8::7"},
		"an address": {config: "flannel-iface: eth1\nnode-ip: 192.0.2.8", node: "edge", ips: []string{"192.0.2.7"}, join: " --node-ip=192.0.2.8"},
	} {
		root := t.TempDir()
		put(t, root, "etc/hostname", "Edge")
		put(t, root, "etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent")
		put(t, root, "etc/rancher/k3s/config.yaml", c.config)
		certified(t, root, "var/lib/rancher/k3s/agent/client-kubelet.crt", "system:node:"+c.node)
		certified(t, root, "var/lib/rancher/k3s/agent/serving-kubelet.crt", c.node, c.ips...)
		r := Find(NewTree(root), nil)
		if !slices.ContainsFunc(r.Steps, func(s Step) bool {
			return slices.Contains(s.Commands, "./islet join --k3s https://SERVER:6443 --token-file token"+c.join)
		}) {
			t.Errorf("%s: %+v", name, r.Steps)
		}
		if flag := strings.TrimSpace(strings.ReplaceAll(c.join, "--node-name", "--hostname-override")); flag != "" {
			inOrder(t, r.Steps, []string{flag})
		}
	}
}

// TestK3sService checks the service of an agent that is not named k3s-agent, and a process of k3s without a known service.
func TestK3sService(t *testing.T) {
	root := t.TempDir()
	put(t, root, "etc/systemd/system/k3s-edge.service", "[Service]\nEnvironment=K3S_CONFIG_FILE=/etc/k3s.yaml\nExecStart=/opt/bin/k3s agent --config /x")
	put(t, root, "etc/systemd/system/k3s-backup.service", "[Service]\nExecStart=/usr/local/bin/backup")
	put(t, root, "etc/k3s.yaml", "server: https://192.0.2.1:6443\nnode-label: [a=b]")
	put(t, root, "etc/k3s.yaml.d/1.yaml", "node-label: [c=d]")
	put(t, root, "etc/k3s.yaml.d/2.yaml", "node-label+: [e=f]")
	r := Find(NewTree(root), nil)
	if len(r.Found) != 1 || r.Found[0].Name != "k3s-edge" || !strings.Contains(r.Found[0].What, "192.0.2.1") {
		t.Errorf("%+v", r.Found)
	}
	inOrder(t, r.Steps, []string{"systemctl disable --now k3s-edge", "k3s-killall.sh", "--node-labels=c=d,e=f", "join --k3s https://192.0.2.1:6443"})
	inOrder(t, r.Back, []string{"systemctl enable --now k3s-edge"})
	r = Find(NewTree(t.TempDir()), []Process{{7, "k3s-agent", true}})
	contains(t, "different", []string{r.Differs[0].Key}, []string{"k3s-agent"})
	inOrder(t, r.Steps, []string{"join --k3s https://SERVER:6443"})
	if strings.Contains(fmt.Sprint(r.Steps), "--parents") {
		t.Errorf("no file exists, but one is saved: %+v", r.Steps)
	}
}
