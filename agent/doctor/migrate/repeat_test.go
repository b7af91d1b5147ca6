package migrate

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/doctor/unitfile"
)

// TestRepeat runs the steps that copy and change the settings of a kubelet, in a shell. It begins again after a failure, with the same and
// with a new report, and goes back: the settings must be as before. A second move copies the settings again.
func TestRepeat(t *testing.T) {
	for _, name := range []string{"kubeadm", "crio"} {
		t.Run(name, func(t *testing.T) {
			tree := recorded(t, name)
			root := tree.root
			in := strings.NewReplacer("(cd / ", "(cd "+root+" ", "-C /", "-C "+root, "/root/before-islet", root+"/root/before-islet",
				" /etc/", " "+root+"/etc/", " /var/lib/", " "+root+"/var/lib/", " /usr/local/", " "+root+"/usr/local/")
			run := func(steps []Step, parts ...string) {
				t.Helper()
				for _, s := range steps {
					for _, c := range s.Commands {
						for _, part := range parts {
							if !strings.Contains(c, part) {
								continue
							}
							if out, err := exec.Command("sh", "-c", in.Replace(c)).CombinedOutput(); err != nil {
								t.Fatalf("%s: %v: %s", c, err, out)
							}
						}
					}
				}
			}
			put(t, root, "root/before-islet.new/half", "")
			for _, content := range []string{"first", "second"} {
				put(t, root, "etc/default/kubelet", "# "+content+"\nKUBELET_EXTRA_ARGS=--container-runtime-endpoint=unix:///run/containerd/containerd.sock")
				before := snapshot(t, root)
				r := Find(tree, nil)
				run(r.Steps, "before-islet", "sed -i")
				if name == "crio" {
					put(t, root, "usr/local/bin/kubelet", "installed")
				}
				run(r.Steps, "before-islet")
				if name == "kubeadm" && strings.Contains(tree.read("var/lib/kubelet/kubeadm-flags.env"), "containerd") {
					t.Fatal("the step did not change the settings")
				}
				again := Find(tree, nil)
				for _, is := range []struct {
					report *Report
					noted  bool
				}{{r, false}, {again, true}} {
					if slices.ContainsFunc(is.report.Differs, func(n Note) bool { return n.File == saved }) != is.noted {
						t.Errorf("a note about copies: want %v: %+v", is.noted, is.report.Differs)
					}
				}
				run(again.Steps, "before-islet", "sed -i")
				if name == "kubeadm" {
					inOrder(t, again.Steps, []string{"ctr -n k8s.io images export", "containerd.sock ps", "systemctl disable --now containerd"})
					inOrder(t, again.Back, []string{"systemctl enable --now containerd"})
				}
				run(r.Back, "before-islet")
				if kept, err := filepath.Glob(root + saved + ".[0-9]*/etc/default/kubelet"); err != nil || len(kept) == 0 {
					t.Errorf("the way back has deleted the copies: %v", err)
				}
				if after := snapshot(t, root); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			}
		})
	}
}

// snapshot returns the names and contents of all files of a host, except for the copies.
func snapshot(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, filepath.Join(root, "root")) {
			return err
		}
		data, err := os.ReadFile(path)
		all.WriteString(strings.TrimPrefix(path, root) + "\n" + string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestLastLine runs the steps that add lines to the environment of islet's service, whose last line has no line break.
func TestLastLine(t *testing.T) {
	tree := recorded(t, "crio")
	put(t, tree.root, "etc/systemd/system/crio.service.d/a.conf", "[Service]\nEnvironment=HTTPS_PROXY=http://a:1")
	r := Find(tree, []Process{{7, "crio", true}})
	file := filepath.Join(t.TempDir(), "islet")
	if err := os.WriteFile(file, []byte("A=1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Steps {
		for _, c := range s.Commands {
			if before, ok := strings.CutSuffix(c, " >>/etc/default/islet"); ok {
				if out, err := exec.Command("sh", "-c", before+" >>"+file).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", c, err, out)
				}
			}
		}
	}
	text, err := os.ReadFile(file)
	env := map[string]string{}
	unitfile.ParseEnvironment(string(text), env)
	if err != nil || env["A"] != "1" || env["ISLET_ARGS"] == "" || env["HTTPS_PROXY"] != "http://a:1" {
		t.Errorf("%v\n%s", err, text)
	}
}
