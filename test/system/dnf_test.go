package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// shell is the spec file of a package that provides /bin/sh, which islet's packages require.
const shell = `Name: shell
Version: 1
Release: 1
Summary: a shell, by name
License: none
BuildArch: noarch
Provides: /bin/sh
%description
What packages want.
%files
`

// TestRepositoryDnf checks that dnf installs from the directory of make repo into an empty root, and rejects a changed repository. TestRPM
// checks the scripts of the packages.
func TestRepositoryDnf(t *testing.T) {
	from, dir := packages(t, false), t.TempDir()
	machine.RequireTools(t, "rpmbuild", "dnf")
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	put(t, filepath.Join(dir, "shell.spec"), shell)
	put(t, filepath.Join(dir, "repos/base.repo"), fmt.Sprintf("[base]\nname=base\nbaseurl=file://%s/base\ngpgcheck=0\n", dir))
	for _, command := range [][]string{{"rpmbuild", "-bb", "--define", "_topdir " + dir + "/made", "--define", "_rpmdir " + dir + "/base", "shell.spec"}, {"createrepo_c", "base"}} {
		if out, err := run(command[0], command[1:]...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	repo := filepath.Join(dir, "dist/repo")
	for i, c := range []struct {
		name   string // empty: the repository is unchanged
		change func()
	}{
		{"", func() {}},
		{"a changed index", func() {
			file := filepath.Join(repo, "rpm/repodata/repomd.xml")
			put(t, file, strings.Replace(read(t, file), "<revision>1700000000<", "<revision>1700000001<", 1))
		}},
		{"a changed package", func() {
			found, err := filepath.Glob(filepath.Join(repo, "rpm/islet-[0-9]*.x86_64.rpm"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			text := []byte(read(t, found[0]))
			text[len(text)-1] ^= 1 // the size stays the same
			put(t, found[0], string(text))
		}},
		{"another key", func() {
			mine := read(t, filepath.Join(repo, "islet.asc"))
			if err := os.RemoveAll(filepath.Join(dir, "dist/trial-key")); err != nil {
				t.Fatal(err)
			}
			machine.Repository(t, from, repo)
			if read(t, filepath.Join(repo, "islet.asc")) == mine {
				t.Fatal("the other key is the same")
			}
			put(t, filepath.Join(repo, "islet.asc"), mine)
		}},
	} {
		machine.Repository(t, from, repo)
		put(t, filepath.Join(dir, "repos/islet.repo"), read(t, filepath.Join(repo, "islet.repo")))
		c.change()
		at := filepath.Join(dir, fmt.Sprint("root", i))
		if err := os.MkdirAll(at+".log", 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := run("dnf", "-y", "--installroot="+at, "--releasever=1", "--setopt=reposdir="+dir+"/repos",
			"--setopt=cachedir="+at+".cache", "--setopt=logdir="+at+".log",
			"--setopt=tsflags=noscripts", "--setopt=pluginpath=/nonexistent", "install", "islet-kubelet", "islet-cni")
		_, there := os.Stat(filepath.Join(at, "usr/bin/islet"))
		switch {
		case c.name != "" && (err == nil || there == nil):
			t.Errorf("dnf installed from a repository with %s: %v\n%s", c.name, err, out)
		case c.name == "" && (err != nil || there != nil):
			t.Fatalf("%v, %v:\n%s", err, there, out)
		case c.name == "":
			if out, err := run("rpm", "--root", at, "-V", "islet", "islet-kubelet", "islet-cni"); err != nil {
				t.Errorf("the installed files differ from the package: %v\n%s", err, out)
			}
		case !strings.Contains(out, "signature verification") && !strings.Contains(out, "checksum"):
			t.Errorf("a repository with %s was rejected for another reason:\n%s", c.name, out)
		}
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
