package packaging

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// step stands for a program that install.sh calls. Before the step with the number in the file "cut" it ends the installer at once, as a
// power cut does. It records what a disk has at that time for certain: the files of the last sync, and the renames since then.
const step = `#!/bin/sh
cd "$STEPS" && echo >>steps
if [ "$(wc -l <steps)" = "$(cat cut)" ]; then kill -9 0; fi
case ${0##*/} in
sync) find "$DESTDIR" -type f -printf '%i\n' >durable; : >renames; exit ;;
mv)
	n=$(wc -l <renames)
	/bin/rm -f "old.$n"
	[ ! -e "$3" ] || /bin/ln "$3" "old.$n"
	echo "$2 $3" >>renames
	;;
esac
exec "/bin/${0##*/}" "$@"
`

// cutOff runs install.sh until the given step, and then cuts the power. Of the renames since the last sync only the last one reaches the
// disk, and no content that was written since then. It returns false if the installer ends before that step.
func cutOff(t *testing.T, cut int, archive, root string, args ...string) bool {
	t.Helper()
	steps := t.TempDir()
	for _, name := range []string{"mv", "ln", "rm", "sync"} {
		write(t, filepath.Join(steps, "bin", name), step, 0o755)
	}
	for name, text := range map[string]string{"steps": "", "renames": "", "durable": "", "cut": fmt.Sprintln(cut)} {
		write(t, filepath.Join(steps, name), text, 0o644)
	}
	before := map[string]bool{}
	for _, inode := range inodes(t, root) {
		before[inode] = true
	}
	cmd := exec.Command("sh", append([]string{filepath.Join(archive, "install.sh")}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := try(cmd, "DESTDIR="+root, "STEPS="+steps, "PATH="+filepath.Join(steps, "bin")+":"+os.Getenv("PATH"))
	if err == nil {
		return false
	}
	if state := cmd.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() {
		t.Fatalf("step %d: %v: %s", cut, err, out)
	}
	lines := func(name string) []string {
		data, err := os.ReadFile(filepath.Join(steps, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(data))
	}
	for _, inode := range lines("durable") {
		before[inode] = true
	}
	for path, inode := range inodes(t, root) {
		if !before[inode] {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	renames := lines("renames")
	for i := 0; i+2 < len(renames); i += 2 {
		if err := os.Rename(renames[i+1], renames[i]); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(steps, fmt.Sprintf("old.%d", i/2)), renames[i+1]); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return true
}

// inodes returns the inodes of the files below a directory by their paths.
func inodes(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			found[path] = fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// waiting returns the files that have no final name yet.
func waiting(files map[string]string) (names []string) {
	for name := range files {
		if strings.HasPrefix(filepath.Base(name), ".") && strings.HasSuffix(name, ".new") {
			names = append(names, name)
		}
	}
	return names
}

// TestInstallCut cuts the power before each step of first installations and of upgrades. No file may be incomplete. If the program has the
// new version, everything else must be there, because the Ansible role takes the program as the mark of a complete installation. The
// service may be enabled only then. Another run completes the installation.
func TestInstallCut(t *testing.T) {
	const program, enabled = "/usr/local/bin/islet", "/etc/systemd/system/multi-user.target.wants/"
	one, two := unpacked(t, "one"), unpacked(t, "two")
	for _, part := range []string{"systemd/islet.service", "kubeadm/kubelet.service", "lib/islet/crun", "doc/guide.md"} {
		write(t, filepath.Join(one, part), "of one", 0o600) // an upgrade replaces it
	}
	type course struct {
		root             string // before the installation
		args             []string
		before, complete map[string]string
	}
	var courses []course
	for _, upgrade := range []bool{false, true} {
		for _, args := range [][]string{nil, {"--kubeadm"}} {
			c := course{root: t.TempDir(), args: args}
			if upgrade {
				run(t, one, c.root, args...)
			}
			root := copyOf(t, c.root)
			run(t, two, root, args...)
			c.before, c.complete = tree(t, c.root), tree(t, root)
			courses = append(courses, c)
		}
	}
	cut, ended := 1, 0
	for ; ended < len(courses); cut++ {
		c := courses[cut%len(courses)] // each step of each course would take minutes
		root := copyOf(t, c.root)
		if !cutOff(t, cut, two, root, c.args...) {
			ended++
			continue
		}
		ended = 0
		now := tree(t, root)
		for name, content := range now {
			if strings.HasPrefix(name, enabled) && now[program] == "" {
				t.Errorf("cut %d: %s is enabled without a program", cut, name)
			}
			replaced := len(c.args) > 0 && name == "/etc/systemd/system/islet.service" // which goes in the end
			if final := !strings.HasSuffix(name, ".new"); final && !replaced && content != c.complete[name] && content != c.before[name] {
				t.Errorf("cut %d: %s is %q", cut, name, content)
			}
		}
		for name, content := range c.complete {
			if now[program] == c.complete[program] && now[name] != content && !strings.HasPrefix(name, enabled) {
				t.Errorf("cut %d: the program is installed, and %s is %q", cut, name, now[name])
			}
		}
		if cut%5 > 0 {
			continue // a second run takes time
		}
		run(t, two, root, c.args...)
		if now := tree(t, root); !same(now, c.complete) {
			t.Errorf("cut %d: a second run leaves\n%v, want\n%v", cut, now, c.complete)
		}
	}
	if cut < 30 {
		t.Errorf("only %d steps", cut)
	}
}

// copyOf returns a copy of a directory.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	root := t.TempDir()
	if out, err := exec.Command("cp", "-a", dir+"/.", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return root
}

// TestUninstallCut ends the installer before each step of an uninstallation. The program must be the last that is removed, so that there is
// something to remove as long as the program exists.
func TestUninstallCut(t *testing.T) {
	archive, installed := unpacked(t, "one"), t.TempDir()
	run(t, archive, installed)
	for cut := 1; ; cut++ {
		root := copyOf(t, installed)
		if !cutOff(t, cut, archive, root, "uninstall", "--purge") {
			if cut < 10 {
				t.Errorf("only %d steps", cut)
			}
			return
		}
		if now := tree(t, root); len(now) > 0 && now["/usr/local/bin/islet"] == "" {
			t.Errorf("cut %d: the program is removed before %v", cut, now)
		}
		if cut%5 == 0 {
			run(t, archive, root, "uninstall", "--purge")
			if left := tree(t, root); len(left) > 0 {
				t.Errorf("cut %d: left over: %v", cut, left)
			}
		}
	}
}

// TestInstallFailsLater checks an installation that cannot replace a file. The old program stays, and no staged file is left.
func TestInstallFailsLater(t *testing.T) {
	root, bin := t.TempDir(), t.TempDir()
	run(t, unpacked(t, "one"), root)
	before := tree(t, root)
	write(t, filepath.Join(bin, "mv"), "#!/bin/sh\ncase $3 in */islet.service) exit 1 ;; esac\nexec /bin/mv \"$@\"\n", 0o755)
	cmd := exec.Command("sh", filepath.Join(unpacked(t, "two"), "install.sh"))
	out, err := try(cmd, "DESTDIR="+root, "PATH="+bin+":"+os.Getenv("PATH"))
	if err == nil || !strings.Contains(out, "could not write /etc/systemd/system/islet.service") {
		t.Errorf("%v: %s", err, out)
	}
	if now := tree(t, root); now["/usr/local/bin/islet"] != before["/usr/local/bin/islet"] || len(waiting(now)) > 0 {
		t.Errorf("there is %v", now)
	}
}
