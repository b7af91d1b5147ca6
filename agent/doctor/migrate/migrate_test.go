package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// recorded writes a tree of testdata into a directory, and returns it. A line "-- PATH --" begins a file, and "-- PATH -> TARGET --" is a
// link.
func recorded(t *testing.T, name string) *Tree {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".tree"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	_, files, _ := strings.Cut(string(text), "\n-- ")
	for part := range strings.SplitSeq(files, "\n-- ") {
		head, content, _ := strings.Cut(part, " --\n")
		put(t, root, strings.TrimSuffix(head, " --"), content)
	}
	return NewTree(root)
}

func put(t *testing.T, root, name, content string) {
	t.Helper()
	name, target, isLink := strings.Cut(name, " -> ")
	path := filepath.Join(root, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if isLink {
		err = errors.Join(err, os.Symlink(target, path))
	} else {
		err = errors.Join(err, os.WriteFile(path, []byte(content+"\n"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFind checks the reports about recorded trees. Each tree has the files of one kind of node.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		tree    string
		running []Process
		found   string   // names of programs; + marks a running program, ^ one that starts at boot
		kept    []string // files
		differs []string // "FILE|KEY"
		steps   []string // parts of commands, in this order
		back    []string // the same of the way back
		files   []string
	}{
		{tree: "kubeadm", running: []Process{{7, "kubelet", true}, {8, "containerd", true}}, found: "kubelet+^ containerd+",
			kept: []string{"/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/pki/ca.crt",
				"/etc/kubernetes/manifests/logger.yaml", "/srv/logger", "/etc/cni/net.d/10-flannel.conflist"},
			differs: []string{"|--no-such-flag", "/var/lib/kubelet/config.yaml|fieldOfTomorrow", "/etc/containerd/config.toml|imports",
				"/etc/containerd/config.toml|proxy_plugins.stargz", "/etc/containerd/config.toml|plugins.io.containerd.nri.v1.nri",
				"/etc/containerd/config.toml|plugins.io.containerd.grpc.v1.cri snapshotter",
				"/etc/containerd/config.toml|plugins.io.containerd.grpc.v1.cri discard_unpacked_layers",
				"/etc/containerd/config.toml|plugins.io.containerd.grpc.v1.cri runtimes.gvisor",
				"/etc/containerd/config.toml|plugins.io.containerd.gc.v1.scheduler", "/opt/nri/plugins/10-logger|"},
			steps: []string{" etc/sysconfig/kubelet etc/default/kubelet;", "islet doctor --migrate --write=", "kubectl drain", "ctr -n k8s.io images export /var/lib/islet/images/", "systemctl disable --now kubelet",
				"xargs -r crictl", "rmp --all --force", "systemctl disable --now containerd", "sed -i 's#unix://\\(/var\\)*/run/containerd/containerd.sock#",
				" /etc/sysconfig/kubelet",
				"/certs.d/. /etc/containerd/certs.d/", "install.sh --kubeadm", "islet doctor", "kubectl uncordon"},
			back: []string{"mv /etc/kubernetes/manifests/* /root/islet-manifests/", "islet wait --for=Deleted", "systemctl stop kubelet", "islet cleanup", "install.sh uninstall",
				"rm /etc/crictl.yaml",
				"(cd /root/before-islet && find . ! -type d", "systemctl enable --now containerd", "systemctl enable --now kubelet", "kubectl uncordon"},
			files: []string{"certs.d/docker.io/hosts.toml", "certs.d/mirror.example:5000/hosts.toml", "config.json"}},
		{tree: "crio", running: []Process{{7, "crio", true}}, found: "kubelet crio+^",
			kept: []string{"/etc/kubernetes/node.conf", "/etc/kubelet.d/a.json"},
			differs: []string{"/etc/crio/crio.conf|crio.runtime.pids_limit", "/etc/crio/crio.conf|crio.runtime.default_ulimits",
				"/etc/crio/crio.conf|crio.runtime.runtimes.kata.runtime_path", "/etc/crio/crio.conf.d/20-metrics.conf|crio.metrics.enable_metrics",
				"/etc/crio/crio.conf.d/30-broken.conf|", "/etc/containers/policy.json|", "/etc/containers/registries.conf|unqualified-search-registries",
				"/etc/containers/registries.conf|registry *.example.org", "/etc/containers/registries.conf|registry bad.example blocked",
				"/etc/containers/registries.conf|registry docker.io pull-from-mirror", "/etc/cni/net.d|"},
			steps: []string{"podman save", "systemctl disable --now kubelet", "crictl --runtime-endpoint unix:///var/run/crio/crio.sock",
				"rc-service crio stop", "mv /usr/local/bin/kubelet",
				`ISLET_ARGS="--kubeconfig=/etc/kubernetes/node.conf --pod-manifest-path=/etc/kubelet.d --node-labels=site=roof"`, "sh install.sh islet-"},
			back:  []string{"systemctl stop islet", "islet cleanup", "(cd /root/before-islet && find . ! -type d", "rc-service crio start"},
			files: []string{"certs.d/docker.io/hosts.toml", "certs.d/lab.example:5000/hosts.toml", "certs.d/old.example/hosts.toml"}},
		{tree: "k3s-agent", running: []Process{{7, "k3s-agent", true}, {8, "containerd", true}}, found: "k3s-agent+^",
			kept: []string{"/var/lib/rancher/k3s/agent/client-kubelet.crt", "/var/lib/rancher/k3s/agent/pod-manifests/a.yaml",
				"/var/lib/rancher/k3s/storage", "/var/lib/rancher/k3s/agent/images/app.tar.zst",
				"/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf"},
			differs: []string{"|k3s network policy", "|k3s failSwapOn", "|k3s evictionHard", "|k3s servicelb", "|k3s load balancer", "/etc/rancher/k3s/config.yaml|flannel-conf",
				"/etc/rancher/k3s/config.yaml|kubelet-arg no-such-flag", "/etc/rancher/k3s/registries.yaml|mirrors.docker.io.rewrite",
				"/etc/rancher/k3s/registries.yaml|mirrors.../../etc/cron.d", "/etc/rancher/k3s/registries.yaml|mirrors.bad.example",
				"/etc/rancher/k3s/registries.yaml|configs.mirror.example.auth", "/etc/rancher/k3s/registries.yaml|configs.token.example.auth.token",
				"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl|", "/var/lib/rancher/k3s/agent/images/old.tar.lz4|",
				"/var/lib/rancher/k3s/agent/etc/containerd/config.toml|runtimes.crun", "/var/lib/rancher/k3s/agent/images/list.txt|"},
			steps: []string{"kubectl drain", "k3s ctr images export", "systemctl disable --now k3s-agent", "k3s-killall.sh",
				"--max-pods=20 --node-labels=site=roof", "./islet join --k3s https://192.0.2.1:6443 --token-file token",
				"certs.d/. /etc/containerd/certs.d/", "sh install.sh islet-", "kubectl label node NODE islet.dev/node=true", "islet doctor", "kubectl uncordon"},
			back: []string{"kubectl drain NODE", "kubectl label node NODE islet.dev/node-", "systemctl stop islet", "systemctl enable --now k3s-agent", "kubectl uncordon"},
			files: []string{"certs.d/_default/hosts.toml", "certs.d/docker.io/hosts.toml", "certs.d/mirror.example/hosts.toml",
				"certs.d/own.example/hosts.toml", "config.json", "manifests/a.yaml"}},
		{tree: "podman", running: []Process{{7, "conmon", true}}, found: "podman+",
			kept: []string{"/etc/containers/systemd/web.yml", "/srv/web", "/etc/containers/systemd/stack/db.container", "/srv/my-app.yaml",
				"/var/lib/containers/storage/volumes/db/_data", "/root/.config/containers/auth.json"},
			differs: []string{"/etc/containers/systemd/web.kube|PublishPort=8080:80", "/etc/containers/systemd/web.kube|Network=host",
				"/etc/containers/systemd/stack/db.container|Container.AutoUpdate", "/etc/containers/systemd/stack/db.container|Service.Restart",
				"/etc/containers/systemd/db.volume|", "/etc/containers/systemd/web.kube.d|", "/home/ann/.config/containers/systemd/job.kube|Yaml=%h/job.yaml",
				"/home/ann/.config/containers/systemd/job.kube|", "/etc/systemd/system/play.service|--publish=80:80", "/srv/play/web.yml|kind: Deployment",
				"/etc/systemd/system/container-nameless.service|ExecStart", "/etc/containers/systemd/users|", "/etc/web/broken.yaml|",
				"/var/lib/containers/storage/volumes/My_data/_data|", "|podman network"},
			steps: []string{"islet doctor --migrate --write=", "podman generate kube db >/root/for-islet/manifests/db.yaml",
				"podman generate kube both >/root/for-islet/manifests/two.yaml", "podman generate kube new >/root/for-islet/manifests/container-new.yaml",
				"podman generate kube old >/root/for-islet/manifests/container-old.yaml", "podman generate kube three >", "podman ps --pod", "podman save", "sudo -iu ann sh -c 'podman save", "systemctl stop -- web", "systemctl --user --machine=ann@ stop -- job",
				"mv /etc/containers/systemd/web.kube /etc/containers/systemd/web.kube.off", `systemctl disable -- 'podman-kube@srv-my\x2dapp.yaml'`,
				"systemctl --user --machine=ann@ daemon-reload", "podman stop --all", "cp -aT --remove-destination /var/lib/containers/storage/volumes/My_data/_data /var/lib/islet/claims/default/my-data",
				"cp -aT --remove-destination /var/lib/containers/storage/volumes/db/_data /var/lib/islet/claims/default/db", "./islet check", "sh install.sh islet-"},
			back: []string{"islet wait --for=Deleted", "systemctl stop islet", "islet cleanup", "cp -aT --remove-destination /var/lib/islet/claims/default/db /var/lib/containers/storage/volumes/db/_data", "mv /etc/containers/systemd/web.kube.off", "systemctl daemon-reload", "systemctl start -- web",
				`systemctl enable -- 'podman-kube@srv-my\x2dapp.yaml'`},
			files: []string{"manifests/broken.yaml", "manifests/claims.yaml", "manifests/map.yaml", "manifests/my-app.yaml", "manifests/web-2.yml",
				"manifests/web.yml"}},
		{tree: "docker", running: []Process{{7, "dockerd", true}, {8, "containerd", true}}, found: "docker+", kept: []string{"/srv/docker/volumes/pages/_data"},
			differs: []string{"/etc/docker/daemon.json|icc", "/etc/docker/daemon.json|log-driver", "/etc/docker/daemon.json|insecure-registries 10.0.0.0/8",
				"/srv/docker/containers/0123/config.v2.json|web"},
			steps: []string{"docker save", "docker stop", "systemctl disable --now docker.socket", "systemctl disable --now docker", "sh install.sh islet-"},
			back:  []string{"islet cleanup", "systemctl enable --now docker"},
			files: []string{"certs.d/docker.io/hosts.toml", "certs.d/lab.example:5000/hosts.toml"}},
	} {
		t.Run(c.tree, func(t *testing.T) {
			r := Find(recorded(t, c.tree), c.running)
			var found, kept, differs, files []string
			for _, p := range r.Found {
				name := p.Name
				if p.Running {
					name += "+"
				}
				if p.AtBoot {
					name += "^"
				}
				found = append(found, name)
			}
			for _, n := range r.Kept {
				kept = append(kept, n.File)
			}
			for _, n := range r.Differs {
				differs = append(differs, n.File+"|"+n.Key)
			}
			for _, f := range r.Files {
				files = append(files, f.Path)
			}
			if slices.Sort(files); strings.Join(found, " ") != c.found || !slices.Equal(files, c.files) {
				t.Errorf("found %q, files %q", found, files)
			}
			contains(t, "kept", kept, c.kept)
			contains(t, "different", differs, c.differs)
			inOrder(t, r.Steps, c.steps)
			inOrder(t, r.Back, c.back)
			if len(r.Skipped) > 0 {
				t.Errorf("skipped %q", r.Skipped)
			}
			checkOutput(t, r)
		})
	}
}

func contains(t *testing.T, what string, have, want []string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(have, w) {
			t.Errorf("%s: no %q in\n%s", what, w, strings.Join(have, "\n"))
		}
	}
}

// inOrder checks that the commands of steps contain the parts in their order.
func inOrder(t *testing.T, steps []Step, parts []string) {
	t.Helper()
	var lines []string
	for _, s := range steps {
		lines = append(lines, s.Commands...)
	}
	rest := lines
	for _, part := range parts {
		i := slices.IndexFunc(rest, func(l string) bool { return strings.Contains(l, part) })
		if i < 0 {
			t.Errorf("%q is missing, or not in order, in\n%s", part, strings.Join(lines, "\n"))
			return
		}
		rest = rest[i:]
	}
}

// checkOutput checks that a report is valid as text and as JSON, and that neither has a secret.
func checkOutput(t *testing.T, r *Report) {
	t.Helper()
	var text bytes.Buffer
	data, err := json.Marshal(r)
	if err := errors.Join(err, r.Write(&text)); err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(data, &again); err != nil || len(again.Steps) != len(r.Steps) {
		t.Errorf("%v: %s", err, data)
	}
	if bytes.Contains(data, []byte(":null")) {
		t.Errorf("a list is null: %s", data)
	}
	for _, secret := range []string{"secret", `p\"w`, "Ym9hcmQ6"} {
		if strings.Contains(text.String(), secret) || strings.Contains(string(data), secret) {
			t.Errorf("the report has %q:\n%s", secret, text.String())
		}
	}
	for _, n := range slices.Concat(r.Kept, r.Differs) {
		if n.What == "" || n.File == "" && n.Key == "" || !strings.Contains(text.String(), n.What) {
			t.Errorf("%+v is not printed", n)
		}
	}
}

// TestPages checks that a report has every command of kubectl in its page of docs, and that the label of the Node in the report is the one
// that the DaemonSets for k3s select.
func TestPages(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join("../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, c := range []struct{ tree, page, there string }{
		{"k3s-agent", "docs/from-k3s.md", "Move a node"}, {"kubeadm", "docs/from-kubelet.md", "What to do"},
	} {
		r := Find(recorded(t, c.tree), nil)
		for section, steps := range map[string][]Step{c.there: r.Steps, "The way back": r.Back} {
			_, text, _ := strings.Cut(read(c.page), "\n## "+section+"\n")
			text, _, _ = strings.Cut(text, "\n## ")
			var commands []string
			for line := range strings.Lines(text) {
				for _, part := range strings.Split(line, "kubectl ")[1:] {
					command := strings.TrimSpace(part[:min(len(part), strings.IndexAny(part+"`", "`#"))])
					command, _, _ = strings.Cut(command, "=unix:")
					if strings.Contains(command, "NODE") { // not in a sentence
						commands = append(commands, "kubectl "+command)
					}
				}
			}
			if len(commands) < 2 {
				t.Errorf("%s, %s: commands %q", c.page, section, commands)
			}
			inOrder(t, steps, commands)
		}
	}
	for _, tree := range []string{"k3s-agent", "crio"} { // what --node-labels does on a Node that exists
		steps := Find(recorded(t, tree), []Process{{7, "crio", true}}).Steps
		if !slices.ContainsFunc(steps, func(s Step) bool {
			return strings.Contains(strings.Join(s.Commands, ""), "--node-labels=site=roof") && strings.HasSuffix(s.Note, registerNote)
		}) {
			t.Errorf("%s: %+v", tree, steps)
		}
	}
	for _, name := range []string{"flannel.yaml", "kube-proxy.yaml"} {
		if !strings.Contains(read("packaging/kustomize/k3s-network/"+name), `nodeSelector: {islet.dev/node: "true"}`) {
			t.Errorf("%s selects other Nodes than those of the step", name)
		}
	}
}

// TestTranslation checks the contents of translated settings of registries. containerd's own decoder must accept each hosts.toml.
func TestTranslation(t *testing.T) {
	hub := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	const root = `capabilities = ["pull", "resolve"]`
	const pull = "  " + root
	for tree, want := range map[string]map[string]string{
		"kubeadm": {
			"certs.d/docker.io/hosts.toml": hub(`[host."https://mirror.example:5000"]`, pull, `  ca = "/etc/ssl/mirror.crt"`,
				`  client = [["/etc/ssl/client.crt", "/etc/ssl/client.key"]]`, "", `[host."http://10.0.0.1"]`, pull),
			"config.json": hub("{", `  "auths": {`, `    "registry.example": {`, `      "auth": "Ym9hcmQ6c2VjcmV0"`, "    }", "  }", "}"),
		},
		"crio": {
			"certs.d/docker.io/hosts.toml": hub(`[host."https://mirror.example/v2/hub"]`, pull, "  override_path = true", "",
				`[host."https://10.0.0.1:5000"]`, pull, "  skip_verify = true", "", `[host."http://10.0.0.1:5000"]`, pull),
			"certs.d/old.example/hosts.toml": hub(`server = "https://new.example"`, root),
			"certs.d/lab.example:5000/hosts.toml": hub(`server = "http://lab.example:5000"`, root, "", `[host."https://lab.example:5000"]`, pull,
				"  skip_verify = true"),
		},
		"k3s-agent": {
			"certs.d/docker.io/hosts.toml": hub(`server = "https://mirror.example"`, root, "skip_verify = true", "",
				`[host."https://mirror.example:5000/hub"]`, pull, "  override_path = true"),
			"certs.d/_default/hosts.toml":    hub(`server = "http://10.0.0.1:5000"`, root),
			"certs.d/own.example/hosts.toml": hub(`server = "https://own.example"`, root, `ca = "/etc/ssl/own.crt"`),
		},
		"docker": {
			"certs.d/docker.io/hosts.toml": hub(`[host."https://hub.example"]`, pull),
		},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		r := Find(recorded(t, tree), nil)
		if err := r.WriteFiles(dir); err != nil {
			t.Fatal(err)
		}
		for name, content := range want {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || string(data) != content {
				t.Errorf("%s: %s: %v\n%s", tree, name, err, data)
			}
		}
		for _, f := range r.Files {
			info, err := os.Stat(filepath.Join(dir, f.Path))
			if err != nil || info.Mode().Perm() != 0o600 || len(f.From) == 0 {
				t.Errorf("%s: %v %v", f.Path, info, err)
			}
			var v map[string]any
			if strings.HasSuffix(f.Path, ".toml") && toml.Unmarshal([]byte(f.content), &v) != nil {
				t.Errorf("%s is not valid:\n%s", f.Path, f.content)
			}
		}
		if err := r.WriteFiles(dir); err == nil {
			t.Error("a directory with files was accepted")
		}
	}
}

// TestNothing checks a host without any program, and one on which islet is the kubelet.
func TestNothing(t *testing.T) {
	for name, file := range map[string]string{
		"nothing": "etc/hostname",
		"islet":   "usr/local/bin/kubelet -> /usr/local/bin/islet",
	} {
		root := t.TempDir()
		put(t, root, file, "")
		put(t, root, "etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/local/bin/kubelet --v=1")
		if name == "nothing" {
			os.Remove(filepath.Join(root, "etc/systemd/system/kubelet.service"))
		}
		if r := Find(NewTree(root), nil); len(r.Found)+len(r.Steps)+len(r.Back)+len(r.Differs) > 0 {
			t.Errorf("%s: %+v", name, r)
		} else {
			checkOutput(t, r)
		}
	}
}

// TestHostile checks that files of a wrong kind or size neither block nor fill the memory, and that the report names them.
func TestHostile(t *testing.T) {
	tree := recorded(t, "kubeadm")
	at := func(name string) string { return filepath.Join(tree.root, name) }
	put(t, tree.root, "etc/systemd/system/k3s.service", "")
	huge := at("etc/rancher/k3s/config.yaml")
	put(t, tree.root, "etc/rancher/k3s/registries.yaml -> /dev/zero", "")
	put(t, tree.root, "etc/rancher/k3s/config.yaml", "")
	err := errors.Join(os.Truncate(huge, 1<<40),
		os.Remove(at("etc/containerd/config.toml")), syscall.Mkfifo(at("etc/containerd/config.toml"), 0o600),
		os.Remove(at("var/lib/kubelet/kubeadm-flags.env")), syscall.Mkfifo(at("var/lib/kubelet/kubeadm-flags.env"), 0o600),
		syscall.Mkfifo(at("etc/kubernetes/manifests/fifo.yaml"), 0o600), os.Symlink(".", at("etc/kubernetes/manifests/loop.yaml")),
		os.MkdirAll(at("etc/containers/systemd"), 0o755), os.Symlink(".", at("etc/containers/systemd/loop")))
	if err != nil {
		t.Fatal(err)
	}
	put(t, tree.root, "etc/kubernetes/manifests/bomb.yaml", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"+
		"c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"+
		"f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\nspec: {volumes: [*f,*f,*f,*f,*f,*f]}")
	put(t, tree.root, "etc/systemd/system/x.service", "[Service]\nExecStart=/usr/bin/podman kube play /srv/\x1b[31m.yaml\n")
	put(t, tree.root, "etc/passwd", "ann:x:1000:1000::/home/ann:/bin/bash")
	put(t, tree.root, "home/ann/.config/containers/storage.conf", "a = "+strings.Repeat("[", maxFile-16))
	put(t, tree.root, "home/ann/.config/containers/containers.conf", "a = "+strings.Repeat("[#]\n", maxTOML/4-16))
	for i := range maxEntries + 2 {
		put(t, tree.root, fmt.Sprintf("etc/cni/net.d/%d", i), "")
	}
	r := Find(tree, nil)
	for _, name := range []string{"/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/registries.yaml", "/etc/containerd/config.toml",
		"/etc/kubernetes/manifests/fifo.yaml", "/etc/kubernetes/manifests/loop.yaml", "/etc/cni/net.d"} {
		if !slices.ContainsFunc(r.Skipped, func(s string) bool { return strings.Contains(s, name) }) {
			t.Errorf("%s is not named in %q", name, r.Skipped)
		}
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil || strings.Contains(text.String(), "\x1b") {
		t.Errorf("%v: the report has control characters", err)
	}
}

// TestSteps checks that every text of steps is valid, and that its variables are replaced.
func TestSteps(t *testing.T) {
	variable := regexp.MustCompile(`\{[a-z]+\}|\t`)
	for _, text := range []string{drainSteps, kubeletStop, kubeletSocket, kubeadmSteps, kubeletMove, saveSteps, forgetSteps, exportSteps, k3sStop, k3sIdentity, k3sServer,
		podmanNotes, rootlessSteps, dockerSteps, commonSteps, endSteps, staticSteps, writeStep, flagStep, proxySteps} {
		p := planner{host: NewTree(t.TempDir())}
		p.addSteps(text, "{endpoint}", "e\n\tx", "{sed}", "s", "{files}", "f", "{export}", "e", "{note}", "n", "{name}", "n", "{url}", "u",
			"{flags}", " f", "{what}", "w", "{user}", "u", "{home}", "h", "{killall}", "k", "{shims}", "s",
			"{option}", "o", "{unit}", "u", "{dir}", "d", "{cleanup}", "c", "{line}", "l", "{lines}", "l", "{file}", "f")
		n := len(p.report.Differs)
		for at := range phases {
			for _, s := range slices.Concat(p.steps[at], p.back[at]) {
				n++
				if s.What == "" || variable.MatchString(s.What+s.Note+strings.Join(s.Commands, "")) && !strings.Contains(text, "{endpoint}") {
					t.Errorf("%+v", s)
				}
			}
		}
		if n == 0 || len(phaseNames()) != phases {
			t.Errorf("no steps in %q", text)
		}
	}
	if lookup(dockerAdvice, "dns") == "" || lookup(dockerAdvice, "n") != "" || lookup(dockerAdvice, "") != "" {
		t.Error("a key is not found, or a part of a key is")
	}
}
