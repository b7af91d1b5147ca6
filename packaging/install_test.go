// Package packaging tests the files that `make dist` ships in addition to the program.
package packaging

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// unpacked creates a directory with the files of an archive and a program that prints its version.
func unpacked(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"systemd", "openrc", "kubeadm", "default"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(part)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"man/islet.1": "a page", "man/islet-logs.1": "a page", "completion/bash": "b", "completion/zsh": "z", "completion/fish": "f", "doc/guide.md": "how", "doc/decisions/why.md": "why", "doc/examples/pod.yaml": "a pod", "doc/examples/node/edge.yaml": "a node", "lib/islet/crun": "an OCI runtime", "built": "1767225600\n"} {
		write(t, filepath.Join(dir, name), text, 0o600)
	}
	for _, name := range []string{"install.sh", "files"} {
		copied(t, name, filepath.Join(dir, name))
	}
	write(t, filepath.Join(dir, "islet"), "#!/bin/sh\necho "+version+"\n", 0o755)
	return dir
}

// try runs a command with additional environment variables. It returns the output.
func try(cmd *exec.Cmd, env ...string) (string, error) {
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func run(t *testing.T, archive, root string, args ...string) string {
	t.Helper()
	out, err := try(exec.Command("sh", append([]string{filepath.Join(archive, "install.sh")}, args...)...), "DESTDIR="+root)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// tree returns the mode, the target and the content of all files below a directory.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		if info.Mode()&fs.ModeSymlink != 0 {
			files[name], err = os.Readlink(path)
			return err
		}
		data, err := os.ReadFile(path)
		files[name] = info.Mode().String() + " " + string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func same(a, b map[string]string) bool {
	for k := range a {
		if a[k] != b[k] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestInstallUpgradeUninstall(t *testing.T) {
	root, archive := t.TempDir(), unpacked(t, "one")
	write(t, filepath.Join(root, "opt/cni/bin/bridge"), "another's", 0o755)
	before := tree(t, root)
	run(t, archive, root)
	first := tree(t, root)
	for _, want := range []string{"/usr/local/bin/islet", "/etc/systemd/system/islet.service", "/etc/init.d/islet", "/etc/default/islet", "/opt/cni/bin/host-local",
		"/usr/local/share/man/man1/islet.1", "/usr/local/share/man/man1/islet-logs.1", "/usr/local/share/bash-completion/completions/islet",
		"/usr/local/share/zsh/site-functions/_islet", "/usr/local/lib/islet/crun", "/usr/local/share/doc/islet/guide.md", "/usr/local/share/doc/islet/decisions/why.md", "/usr/local/share/doc/islet/examples/pod.yaml",
		"/usr/local/share/doc/islet/examples/node/edge.yaml", "/usr/local/share/fish/vendor_completions.d/islet.fish"} {
		if first[want] == "" {
			t.Errorf("%s is not installed", want)
		}
	}
	if !strings.HasSuffix(first["/opt/cni/bin/bridge"], "another's") {
		t.Error("another's plugin was replaced")
	}
	if run(t, archive, root); !same(first, tree(t, root)) {
		t.Error("a second run must change nothing")
	}
	write(t, filepath.Join(root, "etc/default/islet"), "ISLET_ARGS=mine", 0o644)
	run(t, unpacked(t, "two"), root)
	if now := tree(t, root); !strings.Contains(now["/usr/local/bin/islet"], "two") || !strings.HasSuffix(now["/etc/default/islet"], "mine") {
		t.Error("an upgrade must replace the program and keep the settings")
	}
	// The file that the agent has written for logind is removed. A file of another program is kept.
	logind := filepath.Join(root, "etc/systemd/logind.conf.d/99-islet.conf")
	write(t, logind, "[Login]\nInhibitDelayMaxSec=60\n", 0o644)
	run(t, archive, root, "uninstall")
	if err := os.Remove(logind); err != nil {
		t.Error(err)
	}
	run(t, archive, root)
	write(t, logind, "# Made by islet: so long may pods take.\n[Login]\n", 0o644)
	run(t, archive, root, "uninstall")
	if now := tree(t, root); len(now) != len(before)+1 || now["/etc/default/islet"] == "" {
		t.Errorf("left over: %v", now)
	}
	run(t, archive, root, "uninstall", "--purge")
	if now := tree(t, root); !same(before, now) {
		t.Errorf("left over: %v", now)
	}
}

func TestInstallAsKubelet(t *testing.T) {
	root, archive := t.TempDir(), unpacked(t, "one")
	run(t, archive, root)
	run(t, archive, root, "--kubeadm")
	files := tree(t, root)
	if files["/usr/local/bin/kubelet"] != "/usr/local/bin/islet" || files["/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"] == "" ||
		files["/etc/systemd/system/islet-cri.service"] == "" || files["/etc/systemd/system/islet.service"] != "" {
		t.Errorf("got %v", files)
	}
	run(t, archive, root, "uninstall", "--purge")
	if files := tree(t, root); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}

// TestInstallAsKubeletStays upgrades an installation for kubeadm without the option --kubeadm. It must remain an installation for kubeadm.
func TestInstallAsKubeletStays(t *testing.T) {
	root := t.TempDir()
	run(t, unpacked(t, "one"), root, "--kubeadm")
	first := tree(t, root)
	if out := run(t, unpacked(t, "two"), root); !strings.Contains(out, "stays one") {
		t.Error(out)
	}
	now := tree(t, root)
	if !strings.Contains(now["/usr/local/bin/islet"], "two") {
		t.Error("an upgrade must replace the program")
	}
	if now["/usr/local/bin/islet"] = first["/usr/local/bin/islet"]; !same(first, now) {
		t.Errorf("an upgrade changed\n%v to\n%v", first, now)
	}
}

// TestInstallFails checks that the installation ends with a message if a file cannot be written. The previous files must be kept, and no
// incomplete file may be left.
func TestInstallFails(t *testing.T) {
	root := t.TempDir()
	run(t, unpacked(t, "one"), root)
	before := tree(t, root)
	archive := unpacked(t, "two")
	unit := filepath.Join(archive, "systemd/islet.service")
	if err := os.Remove(unit); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(unit, 0o755); err != nil { // cp does not copy over a directory
		t.Fatal(err)
	}
	out, err := try(exec.Command("sh", filepath.Join(archive, "install.sh")), "DESTDIR="+root)
	if err == nil || !strings.Contains(out, "could not write /etc/systemd/system/islet.service") {
		t.Errorf("%v: %s", err, out)
	}
	if after := tree(t, root); !same(before, after) {
		t.Errorf("left over: %v", after)
	}
	// Another kubelet is found before anything changes.
	write(t, filepath.Join(root, "usr/local/bin/kubelet"), "another's", 0o755)
	before = tree(t, root)
	out, err = try(exec.Command("sh", filepath.Join(unpacked(t, "two"), "install.sh"), "--kubeadm"), "DESTDIR="+root)
	if after := tree(t, root); err == nil || !strings.Contains(out, "is another program") || !same(before, after) {
		t.Errorf("%v: %s\n%v", err, out, after)
	}
}

// TestInstallModes checks that the installed files have the modes of the CIS benchmark with any umask. Only root may write them, and only
// root may read files that may contain a secret.
func TestInstallModes(t *testing.T) {
	for _, mask := range []string{"000", "022", "077"} {
		for _, args := range []string{"", "--kubeadm"} {
			root, archive := t.TempDir(), unpacked(t, "one")
			for _, f := range []string{"etc/kubernetes/manifests/web.yaml", "etc/kubernetes/kubelet.conf"} {
				write(t, filepath.Join(root, f), "", 0o666)
			}
			cmd := exec.Command("sh", "-c", "umask "+mask+"; exec sh "+filepath.Join(archive, "install.sh")+" "+args)
			if out, err := try(cmd, "DESTDIR="+root); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
				if err != nil || path == root || e.Type()&fs.ModeSymlink != 0 {
					return err
				}
				info, err := e.Info()
				if err != nil {
					return err
				}
				name, mode := strings.TrimPrefix(path, root), info.Mode().Perm()
				want := fs.FileMode(0o644)
				switch {
				case e.IsDir(), strings.HasSuffix(name, "/bin/islet"), strings.HasSuffix(name, "/crun"), strings.HasPrefix(name, "/etc/init.d/"):
					want = 0o755
				case strings.HasPrefix(name, "/etc/kubernetes/"), strings.HasPrefix(name, "/etc/systemd/system/"):
					want = 0o600
				}
				if mode != want {
					t.Errorf("umask %s %s: %s is %o, want %o", mask, args, name, mode, want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	for _, args := range [][]string{{"--frobnicate"}, {"remove"}} {
		cmd := exec.Command("sh", append([]string{"install.sh"}, args...)...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "unknown argument") {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
}

// alone runs install.sh on this machine with empty installation directories and without an init system. Programs in bin take precedence
// over others.
func alone(t *testing.T, bin string, args ...string) (string, error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat("/usr/bin/islet"); err == nil {
		t.Skip("islet is installed as a package here, beside which install.sh installs nothing")
	}
	awk, err := exec.LookPath("awk") // a symlink through /etc on some systems
	if err == nil {
		awk, err = filepath.EvalSymlinks(awk)
	}
	if err == nil {
		os.Remove(filepath.Join(bin, "awk")) // created by an earlier call
		err = os.Symlink(awk, filepath.Join(bin, "awk"))
	}
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	return try(exec.Command("unshare", append([]string{"-m", "sh", "-euc", `for d in /usr/local /etc /opt /var /run; do mount -t tmpfs none $d; done; exec sh "$@"`, "sh"}, args...)...), "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+tmp, "DESTDIR=")
}

// TestInstallElsewhere checks that a program for another architecture is not installed.
func TestInstallElsewhere(t *testing.T) {
	from := unpacked(t, "one")
	arm := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)
	arm[16], arm[18] = 2, 0xb7 // a program for AArch64
	if runtime.GOARCH == "arm64" {
		arm[18] = 0x3e // a program for x86-64
	}
	write(t, filepath.Join(from, "islet"), string(arm), 0o755)
	for _, archive := range []string{from, packed(t, from)} {
		out, err := alone(t, t.TempDir(), filepath.Join(from, "install.sh"), "--no-start", archive)
		if err == nil || !strings.Contains(out, "this archive is not for ") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestInstallClock checks that the installer reports a clock that is earlier than the build time of islet. The program contains its build
// time, which islet doctor uses as well.
func TestInstallClock(t *testing.T) {
	from, bin := unpacked(t, "one"), t.TempDir()
	write(t, filepath.Join(from, "built"), "1800000000\n", 0o600)
	write(t, filepath.Join(from, "islet"), "#!/bin/sh\necho one\n[ \"$1\" != doctor ] || stat -c 'made %Y' /usr/local/bin/islet\n", 0o755)
	for _, c := range []struct {
		now  string
		says bool
	}{{"0", true}, {"1767225600", true}, {"1799913599", true}, {"1799913600", false}, {"1900000000", false}} {
		write(t, filepath.Join(bin, "date"), "#!/bin/sh\nexec /bin/date -u -d @"+c.now+" \"$@\"\n", 0o755)
		out, err := alone(t, bin, filepath.Join(from, "install.sh"), "--no-start")
		if err != nil || strings.Contains(out, "before islet was made") != c.says || !strings.Contains(out, "made 1800000000") {
			t.Errorf("%s: %v: %s", c.now, err, out)
		}
		if c.now == "1767225600" && !strings.Contains(out, "the clock says 2026-01-01, before") {
			t.Error(out)
		}
	}
}

// TestEmpty checks that nothing is removed from a directory if a file system is mounted below it. This applies to any name, also if the
// directory is a symlink to another disk. If a file system is mounted on the directory itself, the files in it are removed. The installer
// and the packages each contain the tested function.
func TestEmpty(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, script := range []string{"install.sh", "packages/scripts/common.sh"} {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		_, body, ok := strings.Cut(string(text), "\nempty() {\n")
		body, _, _ = strings.Cut(body, "\n}\n")
		if !ok {
			t.Fatalf("%s has no empty", script)
		}
		for _, c := range []struct{ name, before, left string }{
			{"a directory", "mkdir lib", "precious"},
			{"a mount below", "mkdir -p lib/sub && mount --bind data lib/sub", "precious lib/a lib/sub/precious"},
			{"a link, a mount below", "mkdir -p disk/sub && ln -s disk lib && mount --bind data disk/sub", "precious disk/a disk/sub/precious"},
			{"a link to blanks, a mount below", "mkdir -p 'my disk/sub' && ln -s 'my disk' lib && mount --bind data 'my disk/sub'", "precious my disk/a my disk/sub/precious"},
			{"a link", "mkdir disk && ln -s disk lib", "precious"},
			{"a mount on it", "mkdir lib && mount -t tmpfs none lib", "precious"},
			{"a mount beside", "mkdir -p lib library && mount --bind data library", "precious library/precious"},
		} {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "data/precious"), "", 0o644)
			out, err := exec.Command("unshare", "-m", "sh", "-euc",
				"say() { echo \"$@\"; }\nempty() {\n"+body+"\n}\ncd "+dir+"\n"+c.before+"\n: >lib/a\nempty "+dir+
					"/lib >said 2>&1\nfind . -type f ! -name said | sed 's|^./||; s|^data/||' | sort").CombinedOutput()
			got := strings.Fields(string(out))
			want := strings.Fields(c.left)
			slices.Sort(got)
			slices.Sort(want)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, %s: %v: there is %q, want %q", script, c.name, err, got, want)
			}
		}
	}
}

// TestUnits checks that the units work as the README describes.
func TestUnits(t *testing.T) {
	for _, file := range []string{"systemd/islet.service", "kubeadm/kubelet.service", "kubeadm/islet-cri.service"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		for _, want := range []string{"Type=notify", "KillMode=process", "Delegate=yes", "Restart=always", "StartLimitIntervalSec=0"} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s lacks %s", file, want)
			}
		}
		for _, line := range lines {
			for _, never := range []string{"Private", "Protect", "ReadOnly", "network-online"} {
				if strings.Contains(line, never) && !strings.HasPrefix(line, "#") {
					t.Errorf("%s must not have %s", file, line)
				}
			}
		}
	}
}

func TestShellcheck(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed: packaging/deps.sh test, as make test does")
	}
	for _, args := range [][]string{{"install.sh", "deps.sh", "release.sh", "repo.sh", "oci/build.sh", "oci/source.sh", "oci/for-run.sh", "demo/run.sh", "demo/node.sh", "../test/fuzz.sh", "../test/old.sh", "../test/skopeo.sh", "../test/stage.sh", "../test/reproducible.sh", "cloud-init/first-boot.sh", "cloud-init/pi-gen/00-run.sh"}, {"-s", "sh", "-e", "SC2034", "openrc/islet.initd"}} {
		if out, err := exec.Command("shellcheck", args...).CombinedOutput(); err != nil {
			t.Errorf("%s", out)
		}
	}
}
