package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// archive creates a minimal archive. The archive has all files that make dist-one creates, and the real table.
func archive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"systemd", "openrc", "kubeadm", "default"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join("..", part))); err != nil {
			t.Fatal(err)
		}
	}
	table, err := os.ReadFile("../files")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"files": string(table), "islet": "a program", "lib/islet/crun": "another", "man/islet.1": "a page", "man/islet-logs.1": "a page",
		"completion/bash": "b", "completion/zsh": "z", "completion/fish": "f"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil { // the modes are in the table, not in the archive
			t.Fatal(err)
		}
	}
	command(t, "../docs.sh", filepath.Join(dir, "doc"))
	return dir
}

func made(t *testing.T, from, arch string) string {
	t.Helper()
	to := t.TempDir()
	b := buildArgs{version: "0.1.0", arch: arch, from: from, to: to, buildTime: time.Unix(1_700_000_000, 0).UTC()}
	if err := b.buildPackages(); err != nil {
		t.Fatal(err)
	}
	return to
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestSameBytes checks for each architecture that two builds of the packages are identical. The packages have the names that apt and dnf
// expect.
func TestSameBytes(t *testing.T) {
	from := archive(t)
	for arch, names := range map[string][2]string{"amd64": {"amd64", "x86_64"}, "arm64": {"arm64", "aarch64"}, "arm": {"armhf", "armv7hl"}, "riscv64": {"riscv64", "riscv64"}} {
		one, two := made(t, from, arch), made(t, from, arch)
		for _, name := range []string{"islet", "islet-cni", "islet-kubelet"} {
			for _, file := range []string{name + "_0.1.0-1_" + names[0] + ".deb", name + "-0.1.0-1." + names[1] + ".rpm"} {
				a, err := os.ReadFile(filepath.Join(one, file))
				if err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(filepath.Join(two, file))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(a, b) {
					t.Errorf("%s differs from one time to the next", file)
				}
			}
		}
	}
}

// TestContents checks the files in each deb package. A package must contain exactly the files of the table and the documentation. Only
// root can write them. The settings are not conffiles, because dpkg would prompt for existing files and fail without an answer. The
// scripts install the settings.
func TestContents(t *testing.T) {
	from := archive(t)
	to := made(t, from, "amd64")
	table, err := readTable(from, "deb")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packageSpecs() {
		deb, root := filepath.Join(to, p.name+"_0.1.0-1_amd64.deb"), t.TempDir()
		command(t, "dpkg-deb", "-x", deb, root)
		control := t.TempDir()
		command(t, "dpkg-deb", "-e", deb, control)
		if conffiles, err := os.ReadFile(filepath.Join(control, "conffiles")); err == nil {
			t.Errorf("%s has conffiles: %s", p.name, conffiles)
		}
		after, _ := os.ReadFile(filepath.Join(control, "postinst")) // empty if the script is missing
		want := map[string]Entry{}
		for _, e := range table {
			if e.Part == p.name {
				if e.Type == "man" {
					e.Path += ".gz"
				}
				if e.Type == "config" {
					if !bytes.Contains(after, []byte("\n"+e.Path+" ")) {
						t.Errorf("%s: no script installs %s", p.name, e.Path)
					}
					e.Path = settingsDir + e.Path
				}
				want[e.Path] = e
			}
		}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(path, root)
			info, err := d.Info()
			if err != nil {
				return err
			}
			e, ok := want[name]
			delete(want, name)
			switch {
			case !ok && !d.IsDir() && !strings.HasPrefix(name, "/usr/share/doc/"+p.name+"/") && name != "/usr/share/lintian/overrides/"+p.name:
				t.Errorf("%s has %s, which is not in the table", p.name, name)
			case ok && e.Type != "link" && info.Mode().Perm() != e.Mode:
				t.Errorf("%s: %s has mode %o, want %o", p.name, name, info.Mode().Perm(), e.Mode)
			case info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o022 != 0:
				t.Errorf("%s: other users can write %s", p.name, name)
			case ok && e.Type == "link":
				if target, err := os.Readlink(path); err != nil || filepath.Base(target) != "islet" {
					t.Errorf("%s points to %s, %v", name, target, err)
				}
			}
			if ok && (strings.HasSuffix(name, ".service") || e.Type == "init") {
				if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte("/usr/local")) {
					t.Errorf("%s names a program that the package does not have: %v", name, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for name := range want {
			t.Errorf("%s lacks %s", p.name, name)
		}
	}
}

// TestDocuments unpacks the deb package with the documents. Each relative link in the documents must refer to a file of the package.
func TestDocuments(t *testing.T) {
	root := t.TempDir()
	command(t, "dpkg-deb", "-x", filepath.Join(made(t, archive(t), "amd64"), "islet_0.1.0-1_amd64.deb"), root)
	links, pattern := 0, regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	err := filepath.WalkDir(filepath.Join(root, "usr/share/doc/islet"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, link := range pattern.FindAllSubmatch(text, -1) {
			target := string(link[1])
			if strings.Contains(target, ":") {
				continue // a URL
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), target)); err != nil {
				t.Errorf("%s: link to %s: %v", strings.TrimPrefix(path, root), target, err)
			}
		}
		return err
	})
	if err != nil || links < 100 {
		t.Fatalf("%d links: %v", links, err)
	}
}

// TestRelations checks that the packages satisfy the dependencies of cluster tools on the kubelet and on the CNI plugins.
func TestRelations(t *testing.T) {
	to := made(t, archive(t), "amd64")
	for name, want := range map[string]string{"islet-kubelet": "kubelet (= 1.37.2)|kubelet|kubelet|islet (= 0.1.0-1)", "islet-cni": "kubernetes-cni (= 1.9.1)|kubernetes-cni|kubernetes-cni|islet (= 0.1.0-1)"} {
		var got []string
		for _, field := range []string{"Provides", "Conflicts", "Replaces", "Depends"} {
			got = append(got, strings.TrimSpace(command(t, "dpkg-deb", "-f", filepath.Join(to, name+"_0.1.0-1_amd64.deb"), field)))
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("%s: %s, want %s", name, s, want)
		}
		files := command(t, "dpkg-deb", "-c", filepath.Join(to, name+"_0.1.0-1_amd64.deb"))
		if strings.Contains(files, "10-kubeadm.conf") { // dpkg installs no two packages with one file
			t.Errorf("%s has a file of the package kubeadm", name)
		}
		if name == "islet-kubelet" && !strings.Contains(files, "/kubelet.service.d/20-islet.conf") {
			t.Errorf("%s has no drop-in that is stronger than that of the package kubeadm:\n%s", name, files)
		}
	}
}

// TestTableRefuses checks that an invalid line of the table is an error. It must not be skipped.
func TestTableRefuses(t *testing.T) {
	for _, line := range []string{"islet file 0644 a", "islet file 0999 a /b", "islet file 0644 a {where}/b", "islet man 0644 man/*.9 /usr/share/man/"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "files"), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readTable(dir, "deb"); err == nil {
			t.Errorf("%q gave %v", line, got)
		}
	}
}

// TestScripts checks that each script of the deb and rpm packages is valid for sh.
func TestScripts(t *testing.T) {
	to := made(t, archive(t), "amd64")
	for _, name := range []string{"islet", "islet-kubelet"} {
		dir := t.TempDir()
		command(t, "dpkg-deb", "-e", filepath.Join(to, name+"_0.1.0-1_amd64.deb"), dir)
		for _, script := range []string{"postinst", "prerm", "postrm"} {
			command(t, "sh", "-n", filepath.Join(dir, script))
			// The scripts do nothing if dpkg calls them after a failure or for another purpose.
			command(t, "sh", filepath.Join(dir, script), "abort-upgrade", "0.0.9")
		}
	}
}

// TestPresetOnce checks that without deb-systemd-helper a unit gets its preset at the first installation only. An upgrade would otherwise
// enable a unit that an administrator has disabled.
func TestPresetOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho \"$@\" >&3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for argument, want := range map[string]string{"1": "--no-reload preset islet.service\n", "2": ""} {
		script := scriptBeginnings["rpm"]["after"] + "\n. scripts/common.sh\nexec 3>&1\nenable islet.service"
		cmd := exec.Command("/bin/sh", "-c", script, "sh", argument)
		cmd.Env = []string{"PATH=" + dir}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s installed: %v, %q; want %q", argument, err, out, want)
		}
	}
}

// This function returns a real archive. make test builds the archive first, so no check is skipped.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ISLET_DIST_DIR")
	if dir == "" {
		t.Skip("ISLET_DIST_DIR names no real archive: make test-long does")
	}
	return dir
}

// TestInstalledSize checks that the installed files without the OCI runtime have at most 52 MB: the program has at most 50 (BUDGET_MB of
// the Makefile).
func TestInstalledSize(t *testing.T) {
	dir := dist(t)
	debs, err := filepath.Glob(filepath.Join(made(t, dir, runtime.GOARCH), "islet_*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatal(debs, err)
	}
	root := t.TempDir()
	command(t, "dpkg-deb", "-x", debs[0], root)
	const oci, most = "/usr/lib/islet/crun", 52_000_000
	sizes := map[string]int64{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sizes[strings.TrimPrefix(path, root)] = info.Size()
		}
		return err
	})
	if err != nil || sizes[oci] == 0 {
		t.Fatal(sizes, err)
	}
	delete(sizes, oci)
	sum := int64(0)
	for _, size := range sizes {
		sum += size
	}
	t.Logf("%d files, %.2f MB", len(sizes), float64(sum)/1e6)
	if sum > most {
		t.Errorf("%d bytes are installed, not %d or less", sum, most)
	}
}

// TestLicences checks that each part in the SBOM of a real archive has a licence file beside the SBOM and in the documentation of each
// package.
func TestLicences(t *testing.T) {
	dir := dist(t)
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, "doc", name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var spdx struct {
		Packages []struct{ SPDXID, Name, VersionInfo string }
	}
	if err := json.Unmarshal(read("islet.spdx.json"), &spdx); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(read("NOTICES.gz")))
	if err != nil {
		t.Fatal(err)
	}
	notices, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	others := map[string]string{"libsystemd": "LGPL-2.1", "blake3": "islet"} // parts that have the licence of another part
	found := map[string]bool{}
	for _, p := range spdx.Packages[1:] {
		found[p.Name] = true
		switch {
		case strings.HasPrefix(p.SPDXID, "SPDXRef-oci-"):
			if text := read("LICENSE." + cmp.Or(others[p.Name], p.Name)); len(text) < 500 {
				t.Errorf("the licence of %s is %q", p.Name, text)
			}
		case p.Name == "stdlib":
			p.Name = "Go"
			fallthrough
		default:
			if !bytes.Contains(notices, []byte("\n"+p.Name+" "+p.VersionInfo+": ")) {
				t.Errorf("no licence of %s %s", p.Name, p.VersionInfo)
			}
		}
	}
	for _, name := range []string{"crun", "libseccomp", "libcap", "glibc", "libgcc", "stdlib", "modernc.org/sqlite", "github.com/containerd/containerd/v2"} {
		if !found[name] {
			t.Errorf("the SBOM does not name %s", name)
		}
	}
	if text := read("LICENSE.islet"); !bytes.Contains(text, []byte("Apache License")) {
		t.Errorf("islet's licence is %.100q", text)
	}
}

// unpackedHere makes rpmlint unpack packages in its own directory. nfpm writes files with absolute names. rpmlint uses cpio, which would
// write such files into the directories of this machine.
func unpackedHere(t *testing.T) {
	t.Helper()
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Fatal("cpio is not installed: packaging/deps.sh packages")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cpio"), []byte("#!/bin/sh\nexec "+cpio+" --no-absolute-filenames \"$@\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestLint checks packages with lintian and rpmlint, and the scripts of the packages with shellcheck. The exceptions and their reasons are
// in lintian/ and rpmlint.toml. Packages of another architecture are checked if their archive is in the same directory as the archive in
// ISLET_DIST_DIR.
func TestLint(t *testing.T) {
	unpackedHere(t)
	name, _ := strings.CutSuffix(dist(t), runtime.GOARCH)
	for _, arch := range []string{"amd64", "arm64", "arm", "riscv64"} {
		if _, err := os.Stat(name + arch); err != nil && arch != runtime.GOARCH {
			continue
		}
		to := made(t, name+arch, arch)
		t.Run(arch+" shellcheck", func(t *testing.T) {
			scripts := t.TempDir()
			for _, name := range []string{"islet", "islet-kubelet"} {
				debs, err := filepath.Glob(filepath.Join(to, name+"_*.deb"))
				if err != nil || len(debs) != 1 {
					t.Fatal(debs, err)
				}
				command(t, "dpkg-deb", "-e", debs[0], filepath.Join(scripts, name))
			}
			files, err := filepath.Glob(filepath.Join(scripts, "*/p*"))
			if err != nil || len(files) != 8 {
				t.Fatal(files, err)
			}
			command(t, "shellcheck", append([]string{"-e", "SC3044"}, files...)...) // these scripts have a function named enable
		})
		for kind, command := range map[string][]string{"deb": {"lintian", "--allow-root", "--fail-on", "error,warning"}, "rpm": {"rpmlint", "--config", "rpmlint.toml"}} {
			t.Run(arch+" "+command[0], func(t *testing.T) {
				if _, err := exec.LookPath(command[0]); err != nil {
					t.Fatal("it is not installed: packaging/deps.sh packages")
				}
				packages, err := filepath.Glob(filepath.Join(to, "*."+kind))
				if err != nil || len(packages) != 3 {
					t.Fatal(packages, err)
				}
				out, err := exec.Command(command[0], append(command[1:], packages...)...).CombinedOutput()
				if err != nil || kind == "rpm" && !strings.Contains(string(out), "3 packages and 0 specfiles checked; 0 errors, 0 warnings") {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
