package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// packed creates an archive of a directory, as make dist does. It returns the path of the archive.
func packed(t *testing.T, from string, tar ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "islet-9.0.0+x-linux-amd64.tar.gz")
	args := append([]string{"-czf", file, "-C", filepath.Dir(from), "--transform=s|^" + filepath.Base(from) + "|islet-9.0.0+x-linux-amd64|"}, tar...)
	if out, err := exec.Command("tar", append(args, filepath.Base(from))...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// TestInstallArchive checks the installation of an archive or a directory that is given on the command line. The installation script of
// this archive is used. No unpacked file is left.
func TestInstallArchive(t *testing.T) {
	want := t.TempDir()
	run(t, unpacked(t, "two"), want, "--kubeadm")
	script := unpacked(t, "one")
	two := unpacked(t, "two")
	for _, from := range []string{two, packed(t, two)} {
		root, tmp := t.TempDir(), t.TempDir()
		t.Setenv("TMPDIR", tmp)
		if run(t, script, root, from, "--kubeadm"); !same(tree(t, want), tree(t, root)) {
			t.Errorf("%s: installed is\n%v", from, tree(t, root))
		}
		run(t, script, root, "uninstall", "--purge", from)
		if left := tree(t, root); len(left) > 0 {
			t.Errorf("%s: left over: %v", from, left)
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("%s: left over: %v, %v", from, left, err)
		}
	}
	// If only the name of an archive is given, the script searches its own directory.
	root := t.TempDir()
	cmd := exec.Command("sh", "../"+filepath.Base(script)+"/install.sh", ".")
	cmd.Dir = two
	if out, err := try(cmd, "DESTDIR="+root); err != nil || !strings.Contains(tree(t, root)["/usr/local/bin/islet"], "two") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestInstallArchiveRefuses checks that nothing changes if an archive is incomplete or does not belong to islet. The message must contain
// the name of the archive and the reason.
func TestInstallArchiveRefuses(t *testing.T) {
	script, whole := unpacked(t, "one"), packed(t, unpacked(t, "two"))
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cut := filepath.Join(dir, "cut.tar.gz")
	write(t, cut, string(data[:len(data)-20]), 0o600)
	text := filepath.Join(dir, "text.tar.gz")
	write(t, text, "no archive", 0o600)
	foreign := filepath.Join(dir, "foreign.tar.gz")
	if out, err := exec.Command("tar", "-czf", foreign, "-C", dir, "text.tar.gz").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	without := func(names ...string) string {
		from := unpacked(t, "two")
		for _, name := range names {
			if err := os.RemoveAll(filepath.Join(from, name)); err != nil {
				t.Fatal(err)
			}
		}
		return from
	}
	with := func(make func(dir string) error) string {
		from := unpacked(t, "two")
		if err := make(from); err != nil {
			t.Fatal(err)
		}
		return from
	}
	outside := unpacked(t, "two")
	write(t, filepath.Join(filepath.Dir(outside), "evil"), "x", 0o600)
	for name, c := range map[string]struct{ from, says string }{
		"cut off":          {cut, "cut.tar.gz is not a complete .tar.gz file"},
		"no archive":       {text, "text.tar.gz is not a complete .tar.gz file"},
		"another's":        {foreign, "foreign.tar.gz is not an archive of islet"},
		"not there":        {dir + "/none.tar.gz", "none.tar.gz is not there"},
		"no program":       {packed(t, without("islet")), "it has no islet-9.0.0+x-linux-amd64/islet"},
		"no script":        {packed(t, without("install.sh")), "it has no islet-9.0.0+x-linux-amd64/install.sh"},
		"no unit":          {packed(t, without("systemd/islet.service")), "systemd/islet.service is missing"},
		"no OCI runtime":   {without("lib"), "lib/islet/crun is missing"},
		"no directory":     {without("install.sh"), "has no install.sh: it is not an unpacked archive of islet"},
		"no time":          {with(func(d string) error { return os.WriteFile(d+"/built", []byte("soon"), 0o600) }), "built does not say when"},
		"a link":           {packed(t, with(func(d string) error { return os.Symlink("/etc", d+"/doc/x") })), "it has a link or a device"},
		"leads out":        {packed(t, outside, "-P", "--transform=s|/guide.md|/../../guide.md|"), "/../../guide.md leads out of it"},
		"something beside": {packed(t, outside, "-P", "--transform=s|^.*/guide.md|/etc/guide.md|"), "it has /etc/guide.md"},
	} {
		root, tmp := t.TempDir(), t.TempDir()
		out, err := try(exec.Command("sh", filepath.Join(script, "install.sh"), c.from), "DESTDIR="+root, "TMPDIR="+tmp)
		if err == nil || !strings.Contains(out, c.says) || !strings.HasPrefix(out, "islet: ") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		left, err := os.ReadDir(tmp)
		if files := tree(t, root); len(files) > 0 || err != nil || len(left) > 0 {
			t.Errorf("%s: left over: %v %v %v", name, files, left, err)
		}
	}
	if out, err := try(exec.Command("sh", filepath.Join(script, "install.sh"), whole, whole), "DESTDIR="+t.TempDir()); err == nil ||
		!strings.Contains(out, "one archive is installed at a time") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestInstallArchiveRoom checks that an archive is rejected before it is unpacked if the disk has too little space. The message contains
// the needed size, even if gzip does not know the size.
func TestInstallArchiveRoom(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	script := unpacked(t, "one")
	with := func(size int64, tar ...string) string {
		from := unpacked(t, "two")
		write(t, filepath.Join(from, "doc/zeros.md"), "", 0o600)
		if err := os.Truncate(filepath.Join(from, "doc/zeros.md"), size); err != nil {
			t.Fatal(err)
		}
		return packed(t, from, tar...)
	}
	for name, c := range map[string]struct{ archive, says string }{
		"too large":        {with(6 << 20), "only 4 MiB are free in "},
		"of a sparse file": {with(5<<30, "--sparse"), " needs 5121 to be unpacked; TMPDIR=/another/directory"},
		"it fits":          {with(2 << 20), ""},
	} {
		root, tmp := t.TempDir(), t.TempDir()
		out, err := try(exec.Command("unshare", "-m", "sh", "-euc",
			`mount -t tmpfs -o size=4m none "$TMPDIR"; code=0; sh "$@" || code=$?; ls -A "$TMPDIR"; exit $code`, "sh",
			filepath.Join(script, "install.sh"), c.archive), "DESTDIR="+root, "TMPDIR="+tmp)
		installed, lines := len(tree(t, root)) > 0, strings.Count(out, "\n")
		if fits := c.says == ""; (err == nil) != fits || installed != fits || lines != 1 || !strings.Contains(out, c.says) ||
			!strings.HasPrefix(out, "islet: ") {
			t.Errorf("%s: %v, installed %v: %s", name, err, installed, out)
		}
	}
}
