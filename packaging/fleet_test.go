package packaging

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const role = "ansible/roles/islet/"

// glob returns the files that match any of the patterns. Each pattern must match a file.
func glob(t *testing.T, patterns ...string) (files []string) {
	t.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no files: %v", p, err)
		}
		files = append(files, found...)
	}
	return files
}

// TestFleetFiles checks that the files of the Ansible role and the user-data of cloud-init are YAML without duplicate keys.
func TestFleetFiles(t *testing.T) {
	for _, file := range glob(t, "ansible/*.yaml", "ansible/.yamllint", role+"*/*.yaml", "cloud-init/*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var document any
		if err := yaml.UnmarshalStrict(data, &document); err != nil || document == nil {
			t.Errorf("%s: %v: %v", file, document, err)
		}
	}
}

var (
	roleVariable = regexp.MustCompile(`\bislet_[a-z_]*[a-z]\b`)
	setVariable  = regexp.MustCompile(`(?m)^ *(?:register: (islet_[a-z_]+)$|(islet_[a-z_]+): )`)
)

// undefined returns the variables of a role that its files use, but that neither its defaults nor its tasks set.
func undefined(files map[string][]byte, defaults map[string]any) []string {
	known := maps.Clone(defaults)
	for _, data := range files {
		for _, m := range setVariable.FindAllSubmatch(data, -1) {
			known[string(m[1])+string(m[2])] = nil
		}
	}
	missing := map[string]bool{}
	for _, data := range files {
		for _, name := range roleVariable.FindAll(data, -1) {
			if _, ok := known[string(name)]; !ok {
				missing[string(name)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// TestRoleVariables checks that every variable in the tasks has a default or is set by a task, and that the tasks use every default and the
// README explains it.
func TestRoleVariables(t *testing.T) {
	var defaults map[string]any
	readYAML(t, role+"defaults/main.yaml", &defaults)
	files := map[string][]byte{}
	for _, file := range glob(t, role+"tasks/*.yaml", role+"handlers/*.yaml", role+"templates/*", role+"defaults/*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files[file] = regexp.MustCompile(`(?m)^ *#.*$`).ReplaceAll(data, nil)
	}
	delete(files, role+"defaults/main.yaml") // it would set each of its variables
	if names := undefined(files, defaults); len(names) > 0 {
		t.Errorf("no default and no task sets %v", names)
	}
	if names := undefined(map[string][]byte{"": []byte("when: islet_absent and islet_set\nregister: islet_set\n")}, map[string]any{}); !slices.Equal(names, []string{"islet_absent"}) {
		t.Errorf("undefined finds %v", names)
	}
	readme, err := os.ReadFile("ansible/README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Join(slices.Collect(maps.Values(files)), nil)
	for name := range defaults {
		if !regexp.MustCompile(`\b` + name + `\b`).Match(all) {
			t.Errorf("no task uses %s", name)
		}
		if !strings.Contains(string(readme), "| `"+name+"` |") {
			t.Errorf("the README does not explain %s", name)
		}
	}
}

// TestUserData checks that the user-data contains and runs first-boot.sh, and that only root can read its secrets.
func TestUserData(t *testing.T) {
	script, err := os.ReadFile("cloud-init/first-boot.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"cloud-init/join.yaml", "cloud-init/standalone.yaml"} {
		var data struct {
			Files []struct{ Path, Permissions, Content string } `json:"write_files"`
			Run   [][]string                                    `json:"runcmd"`
		}
		readYAML(t, file, &data)
		found := false
		for _, f := range data.Files {
			mode := "0644"
			switch f.Path {
			case "/usr/local/sbin/islet-first-boot":
				mode, found = "0755", true
				if f.Content != string(script) {
					t.Errorf("%s does not contain first-boot.sh", file)
				}
			case "/etc/islet/bootstrap.kubeconfig":
				mode = "0600"
			}
			if f.Permissions != mode {
				t.Errorf("%s: %s has mode %s, want %s", file, f.Path, f.Permissions, mode)
			}
		}
		if !found || len(data.Run) != 1 || data.Run[0][0] != "/usr/local/sbin/islet-first-boot" {
			t.Errorf("%s does not run the script: %v", file, data.Run)
		}
	}
}

// TestPiGen runs the step of pi-gen for a directory instead of the root of an image.
func TestPiGen(t *testing.T) {
	root, stage, from := t.TempDir(), t.TempDir(), unpacked(t, "one")
	archive := packed(t, from)
	step, err := filepath.Abs("cloud-init/pi-gen/00-run.sh")
	if err != nil {
		t.Fatal(err)
	}
	installer, err := os.ReadFile("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(stage, "files/install.sh"), string(installer), 0o755)
	write(t, filepath.Join(stage, "files/islet-9.0.0-linux-arm64.tar.gz"), string(data), 0o644)
	write(t, filepath.Join(stage, "files/bootstrap.kubeconfig"), "secret", 0o644)
	write(t, filepath.Join(stage, "files/islet.yaml"), "kind: BoardSetup", 0o644)
	write(t, filepath.Join(root, "boot/firmware/cmdline.txt"), "console=tty1 rootwait \n", 0o644)
	var first map[string]string
	for range 2 { // pi-gen may repeat a step
		cmd := exec.Command("bash", "-e", step)
		cmd.Dir = stage
		if out, err := try(cmd, "ROOTFS_DIR="+root); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		files := tree(t, root)
		if first == nil {
			first = files
		}
		for file, want := range map[string]string{
			"/boot/firmware/cmdline.txt":                                "-rw-r--r-- console=tty1 rootwait cgroup_enable=memory cgroup_memory=1\n",
			"/etc/islet/bootstrap.kubeconfig":                           "-rw------- secret",
			"/boot/firmware/islet.yaml":                                 "-rw------- kind: BoardSetup",
			"/etc/systemd/system/multi-user.target.wants/islet.service": "/etc/systemd/system/islet.service",
		} {
			if files[file] != want {
				t.Errorf("%s is %q, want %q", file, files[file], want)
			}
		}
		if !same(first, files) {
			t.Error("a second run changes files")
		}
	}
}

// TestRoleFlags checks the order of the agent's flags, of which a later one overrides an earlier one: islet_args overrides the defaults of
// the role, and the role's own kubeconfigs override islet_args.
func TestRoleFlags(t *testing.T) {
	var tasks []struct {
		Vars struct {
			Flags string `json:"islet_flags"`
		}
	}
	readYAML(t, role+"tasks/configure.yaml", &tasks)
	for _, task := range tasks {
		if task.Vars.Flags == "" {
			continue
		}
		got := regexp.MustCompile(`\bislet_(args|join|rotation|swap)\b`).FindAllString(task.Vars.Flags, -1)
		if want := []string{"islet_rotation", "islet_swap", "islet_args", "islet_join"}; !slices.Equal(got, want) {
			t.Errorf("the flags are %q, want %q", got, want)
		}
		return
	}
	t.Error("no task has the flags")
}
