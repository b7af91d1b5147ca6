package migrate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/islet-edge/islet/internal/config"
)

// TestQuote checks that strings with special characters are valid in TOML.
func TestQuote(t *testing.T) {
	for _, text := range []string{`a"b\c`, "line\nend\x00\x7f", "ü", ""} {
		var v struct{ A string }
		if err := toml.Unmarshal([]byte("A = "+quote(text)), &v); err != nil || v.A != text {
			t.Errorf("%q: %q %v", text, v.A, err)
		}
	}
}

// TestCommandLine checks that the flags of a running kubelet are preferred to those of its unit, and that a flag's value may be the next
// word.
func TestCommandLine(t *testing.T) {
	tree := recorded(t, "crio")
	put(t, tree.root, "proc/7/cmdline", "/opt/kubelet\x00--container-runtime-endpoint\x00"+
		"unix:///run/containerd/containerd.sock\x00--hostname_override=edge\x00--node-labels=a=$(reboot)\x00-v\x002")
	put(t, tree.root, "proc/3/cmdline", "/home/ann/kubelet\x00--config=/home/ann/config")
	r := Find(tree, []Process{{3, "kubelet", false}, {7, "kubelet", true}, {9, "kubelet", false}})
	if len(r.Found) != 2 || r.Found[1].Name != "containerd" {
		t.Errorf("%+v", r.Found)
	}
	inOrder(t, r.Steps, []string{`'ISLET_ARGS="--hostname-override=edge`})
	text := fmt.Sprintf("%+v", r)
	if strings.Contains(text, "reboot") || !strings.Contains(text, "--node-labels What:write this flag into ISLET_ARGS by hand") {
		t.Errorf("the command of a stranger's process: %s", text)
	}
}

// TestServer checks that a server of k3s is not migrated as a whole, and that the data directory is that of its configuration.
func TestServer(t *testing.T) {
	root := t.TempDir()
	put(t, root, "etc/init.d/k3s", "")
	put(t, root, "etc/rancher/k3s/config.yaml.d/a.yaml", "data-dir: /srv/k3s/")
	put(t, root, "srv/k3s/agent/pod-manifests/b.yml", "kind: Pod")
	r := Find(NewTree(root), nil)
	if len(r.Found) != 1 || r.Found[0].Name != "k3s" || len(r.Files) != 1 ||
		!slices.ContainsFunc(r.Differs, func(n Note) bool { return n.Key == "k3s server" }) {
		t.Errorf("%+v", r)
	}
	inOrder(t, r.Steps, []string{"rc-service k3s stop", "rc-update del k3s"})
}

// TestUnescape checks names of units that systemd-escape --path has made.
func TestUnescape(t *testing.T) {
	for name, want := range map[string]string{"srv-web.yaml": "/srv/web.yaml", `srv-a\x2db`: "/srv/a-b", "-": "/", `a\x`: `/a\x`, `a\x2`: `/a\x2`, "": "/"} {
		if got := unescape(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestUsersFiles checks that a user without root cannot bring commands or manifests into the steps of root.
func TestUsersFiles(t *testing.T) {
	tree := recorded(t, "podman")
	const dir = "home/ann/.config/containers/systemd/"
	put(t, tree.root, dir+"a;reboot.kube", "[Kube]\nYaml=/home/ann/root.yaml")
	put(t, tree.root, dir+"b.container", "[Container]\nContainerName=$(reboot)'x")
	put(t, tree.root, dir+"link.kube -> "+filepath.Join(tree.root, "etc/containers/systemd/web.kube"), "")
	put(t, tree.root, "home/ann/root.yaml", "kind: Pod")
	put(t, tree.root, "root/.config/containers/systemd/own.kube", "[Kube]\nYaml=own.yaml")
	put(t, tree.root, "root/.config/containers/systemd/own.yaml", "kind: Pod")
	put(t, tree.root, "root/.config/containers/systemd/own.container", "[Container]\nServiceName=other")
	r := Find(tree, nil)
	inOrder(t, r.Steps, []string{"podman generate kube systemd-own >", "systemctl --user --machine=root@ stop -- other"})
	if r.Files == nil || !slices.ContainsFunc(r.Files, func(f File) bool { return f.Path == "manifests/own.yaml" }) ||
		slices.ContainsFunc(r.Differs, func(n Note) bool { return strings.Contains(n.What, "the user root runs without root") }) {
		t.Errorf("the units of root: %+v %+v", r.Files, r.Differs)
	}
	var commands []string
	for _, s := range slices.Concat(r.Steps, r.Back) {
		commands = append(commands, s.Commands...)
	}
	for _, c := range commands {
		if strings.Contains(c, "reboot") && !strings.Contains(c, "'/home/ann/.config/containers/systemd/a;reboot.kube'") &&
			!strings.HasSuffix(c, " 'a;reboot'") && !strings.Contains(c, `kube '$(reboot)'\''x' >`) {
			t.Errorf("not quoted: %s", c)
		}
	}
	if slices.ContainsFunc(r.Files, func(f File) bool { return strings.Contains(strings.Join(f.From, " "), "home/") }) ||
		!slices.ContainsFunc(r.Differs, func(n Note) bool { return strings.HasSuffix(n.File, "link.kube") }) {
		t.Errorf("%+v %+v", r.Files, r.Differs)
	}
}

// TestPodsContainers checks that the container of a pod has no manifest of its own, because podman refuses to generate one, and that the
// claims of volumes are complete.
func TestPodsContainers(t *testing.T) {
	r := Find(recorded(t, "podman"), nil)
	for _, s := range r.Steps {
		for _, c := range s.Commands {
			if strings.Contains(c, "generate kube systemd-one") || strings.Contains(c, "generate kube inside") {
				t.Error(c)
			}
		}
	}
	i := slices.IndexFunc(r.Files, func(f File) bool { return f.Path == "manifests/claims.yaml" })
	if i < 0 || strings.Count(r.Files[i].content, "kind: PersistentVolumeClaim") != 2 || !strings.Contains(r.Files[i].content, `"my-data"`) ||
		!strings.Contains(r.Files[i].content, `"db"`) {
		t.Errorf("%+v", r.Files)
	}
}

// TestClaimName checks that the name of a claim is valid, and that a volume without a name gets none.
func TestClaimName(t *testing.T) {
	for volume, want := range map[string]string{"data": "data", "My_data.1": "my-data.1", "-a": "", "a_": "", "a..b": "", "a b": "", "a\nb": "", "": "",
		strings.Repeat("0f", 32): "", strings.Repeat("0f", 31): strings.Repeat("0f", 31)} {
		if got := claimName(volume); got != want {
			t.Errorf("%q: %q", volume, got)
		}
	}
}

// TestWord checks that a shell gets back the text.
func TestWord(t *testing.T) {
	for text, want := range map[string]string{"": "''", "/a/b-1.yaml": "/a/b-1.yaml", "a b": "'a b'", "a'b": `'a'\''b'`, "$x": "'$x'", "~": "'~'"} {
		if got := word(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// TestK3sFlags checks that islet knows the flags that replace keys of k3s' configuration.
func TestK3sFlags(t *testing.T) {
	for line := range strings.Lines(strings.TrimSpace(k3sFlags)) {
		key, name, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if none, known := config.DescribeFlag(name); !known || none != "" {
			t.Errorf("%s: --%s: %v %s", key, name, known, none)
		}
	}
}

// TestMonitors checks that the monitors of CRI-O's containers are not taken for podman's.
func TestMonitors(t *testing.T) {
	for _, c := range []struct {
		running []Process
		want    int
	}{{[]Process{{7, "conmon", true}}, 1}, {[]Process{{7, "conmon", true}, {8, "crio", true}}, 0}} {
		if r := Find(NewTree(t.TempDir()), c.running); len(r.Found) != c.want {
			t.Errorf("%v: %+v", c.running, r.Found)
		}
	}
}
