package packaging

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/release"
)

// signer writes a key of packaging/sign to a file.
func signer(t *testing.T, file string) release.Key {
	t.Helper()
	t.Setenv("CGO_ENABLED", "0") // like all built programs, so Go's cache contains them; these tests need cgo
	out, err := exec.Command("go", "run", "./sign", "key", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	key, err := release.ParseKey(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestRelease checks that a release contains exactly the files of its version, with signatures that nodes accept. A release is either
// complete or does not exist. The source archives in this test are small fakes. The signing program is the real one.
func TestRelease(t *testing.T) {
	top := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	// The check of advisories has its own test. This test needs only the output of the check.
	write(t, filepath.Join(top, "bin/go"),
		"#!/bin/sh\n[ \"$2\" != ./packaging/advisories ] || { echo \"asked: $*\"; exit ${ISLET_TEST_ADVISORIES:-0}; }\ncd "+root+" && exec "+
			tool+" \"$@\"\n", 0o755)
	copied(t, "release.sh", filepath.Join(top, "packaging/release.sh"))
	copied(t, "install.sh", filepath.Join(top, "packaging/install.sh"))
	copied(t, "oci/source.sh", filepath.Join(top, "packaging/oci/source.sh"))
	changelog := filepath.Join(top, "CHANGELOG.md")
	const changes = "# Changelog\n\n## 0.1.0 - 2026-01-02\n\n### Added\n\n- A [thing](docs/a.md#x), [another](https://example.com/docs/b)\n\n## 0.0.9 - 2025-01-02\n\n- An old thing\n"
	write(t, changelog, changes, 0o644)
	cache, dist, to := filepath.Join(top, "cache"), filepath.Join(top, "dist"), filepath.Join(top, "dist/release")
	list := ""
	for _, line := range []string{"crun 1-1 crun.tar.gz", "libseccomp 2-1 libseccomp.tar.gz", "libcap2 3-1 libcap.tar.xz", "systemd 4-1 systemd.tar.gz", "glibc 5-1 glibc.tar.xz", "glibc 5-1 glibc.debian.tar.xz", "glibc 5-0 glibc.tar.xz",
		"glibc:amd64 5-1 libc_5-1_amd64.deb", "linux:amd64 7 linux_7_all.deb", "glibc:arm 5-0 libc_5-0_armhf.deb"} {
		f := strings.Fields(line)
		list += fmt.Sprintf("%s %x\n", line, sha256.Sum256([]byte(f[2])))
		write(t, filepath.Join(cache, "source", f[2]), f[2], 0o644)
	}
	write(t, filepath.Join(top, "packaging/oci/sources"), list, 0o644)
	write(t, filepath.Join(cache, "source/crun_old.tar.gz"), "of another version", 0o644)
	commit := func(subject string) []string { return []string{"commit", "-q", "--allow-empty", "-m", subject} }
	for _, args := range [][]string{{"init", "-q"}, commit("agent: of the last release"), {"tag", "v0.0.9"}, commit("agent: one"), commit("edge/store: two: and a half"), commit("agent/cli: three"), commit("What: has no part"), commit("net, agent/cpu: four")} {
		if out, err := try(exec.Command("git", append([]string{"-C", top, "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"}, args...)...)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	want := map[string]bool{"install.sh": true, "islet-oci-sources.tar": true, "NOTES.md": true, "SHA256SUMS": true}
	archive := func(version, arch string) string { return "islet-" + version + "-linux-" + arch }
	for _, version := range []string{"0.1.0", "0.1.0-rc1", "10.1.0", "0.1.0+next"} {
		for _, arch := range []string{"amd64", "arm"} {
			names := []string{archive(version, arch) + ".tar.gz"}
			for _, p := range []string{"islet", "islet-cni", "islet-kubelet"} {
				names = append(names, "packages/"+p+"_"+version+"-1_"+arch+".deb", "packages/"+p+"-"+version+"-1."+arch+".rpm")
			}
			for _, name := range names {
				write(t, filepath.Join(dist, name), name, 0o644)
				if version == "0.1.0" {
					want[filepath.Base(name)] = true
				}
			}
			write(t, filepath.Join(dist, archive(version, arch), "doc/islet.spdx.json"),
				"{\n\"name\": \"glibc\",\n\"versionInfo\": \"5-1\",\n\"x\": 1}\n", 0o644)
		}
	}
	want["islet-0.1.0-linux-amd64.spdx.json"], want["islet-0.1.0-linux-arm.spdx.json"] = true, true
	gather := func(env ...string) (string, error) {
		return try(exec.Command(filepath.Join(top, "packaging/release.sh"), "0.1.0", dist, to),
			append(env, "PATH="+filepath.Join(top, "bin")+":"+os.Getenv("PATH"), "ISLET_OCI_CACHE="+cache, "SOURCE_DATE_EPOCH=86400",
				"ISLET_SIGNING_KEY=")...)
	}
	names := func() (out []string) {
		files, err := os.ReadDir(to)
		if err != nil {
			t.Error(err)
		}
		for _, f := range files {
			out = append(out, f.Name())
		}
		return out
	}

	out, err := gather("ISLET_RELEASE_KEYS=")
	if err != nil || !strings.Contains(out, "ISLET_RELEASE_KEYS is not set") || !strings.Contains(out, "SHA256SUMS is not signed") ||
		strings.Contains(out, "not made") {
		t.Fatalf("%v: %s", err, out)
	}
	if got := names(); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("there are %q", got)
	}

	notes, err := os.ReadFile(filepath.Join(to, "NOTES.md"))
	const files = "https://github.com/islet-edge/islet/blob/v0.1.0/"
	if want := "# islet 0.1.0\n\n### Added\n\n- A [thing](" + files + "docs/a.md#x), [another](https://example.com/docs/b)\n" +
		"\n## Signatures\n\nCompare the keys with those that you got in another way ([commands](" + files +
		"packaging/README.md#packages-repositories-releases)).\n\n- The archives are not signed, and `islet update` rejects them.\n" +
		"- `SHA256SUMS` is not signed.\n\n## All changes since v0.0.9, by part\n\n### agent\n\n- one\n- cli: three\n" +
		"\n### edge\n\n- store: two: and a half\n\n### net, agent/cpu\n\n- four\n\n### others\n\n- What: has no part\n"; err != nil || string(notes) != want {
		t.Errorf("%v: the notes are\n%s", err, notes)
	}

	one, two := filepath.Join(top, "one"), filepath.Join(top, "a-trial.key")
	keys := []release.Key{signer(t, one), signer(t, two)}
	if out, err = gather("ISLET_RELEASE_KEYS=" + one + ":" + two); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, arch := range []string{"amd64", "arm"} {
		text, err := os.ReadFile(filepath.Join(to, archive("0.1.0", arch)+".tar.gz.release"))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := release.Parse(text); err != nil || r.Version != "0.1.0" || r.Arch != arch || r.VerifySignatures(keys, 2) != nil {
			t.Errorf("%s: %+v, %v", arch, r, err)
		}
	}
	public, err := os.ReadFile(filepath.Join(to, "release.keys"))
	if err != nil || string(public) != keys[0].String()+"\n"+keys[1].String()+"\n" {
		t.Errorf("%q, %v", public, err)
	}
	notes, err = os.ReadFile(filepath.Join(to, "NOTES.md"))
	if want := "`" + keys[0].String() + "`\n- The archives, for `islet update`: `" + keys[1].String() + "`, a trial key: "; err != nil ||
		!strings.Contains(string(notes), want) || strings.Count(out, "signed by "+keys[0].ID()+", "+keys[1].ID()) != 2 {
		t.Errorf("%v: the notes are\n%s\nand the output is %s", err, notes, out)
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = to
	if out, err := sums.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != len(want)-1+3 {
		t.Errorf("%v: %s", err, out)
	}
	tar, err := exec.Command("tar", "-tf", filepath.Join(to, "islet-oci-sources.tar")).Output()
	if err != nil || string(
		tar) != "oci/\noci/source.sh\noci/sources\ncrun.tar.gz\nglibc.debian.tar.xz\nglibc.tar.xz\nlibcap.tar.xz\nlibseccomp.tar.gz\nsystemd.tar.gz\n" {
		t.Errorf("%v: sources are\n%s", err, tar)
	}

	before := names()
	check := func(offered, more, keys string) (string, error) { // of a machine whose apt offers this C library
		write(t, filepath.Join(top, "bin/apt-cache"), "#!/bin/sh\nprintf 'libc6-dev:\\n  Candidate: "+offered+"\\n'\n", 0o755)
		write(t, filepath.Join(top, "bin/apt-get"), "#!/bin/sh\n", 0o755) // it has no mirrors
		write(t, filepath.Join(top, "packaging/oci/sources"), list+more, 0o644)
		return try(exec.Command(filepath.Join(top, "packaging/release.sh"), "0.1.0"), "ISLET_RELEASE_KEYS="+keys,
			"PATH="+filepath.Join(top, "bin")+":"+os.Getenv("PATH"), "ISLET_OCI_CACHE="+cache, "ISLET_SIGNING_KEY=")
	}
	for name, c := range map[string]struct{ offered, more, keys, bad string }{
		"ready":                           {"5-1", "", one + ":" + two, ""},
		"on another Debian":               {"6-1", "", one, ""},
		"without apt's lists":             {"", "", one, ""},
		"an old C library":                {"5-2", "", one, "names glibc 5-1, and apt offers 5-2"},
		"the headers of an entry":         {"5-0", "linux:arm 8 linux_8_all.deb " + strings.Repeat("0", 64) + "\n", one, "the sources of linux:arm are missing"},
		"a key that is not a private key": {"5-0", "", one + ":" + changelog, "contains no private key"},
		"a key that is not there":         {"5-0", "", top + "/none", "none"},
	} {
		if out, err := check(c.offered, c.more, c.keys); (err == nil) != (c.bad == "") || !strings.Contains(out, c.bad) {
			t.Errorf("before a release, %s: %v: %s", name, err, out)
		}
	}
	write(t, filepath.Join(top, "packaging/oci/sources"), list, 0o644)
	if got := names(); !slices.Equal(got, before) {
		t.Errorf("the check leaves %q", got)
	}
	if out, err := gather("ISLET_RELEASE_KEYS="+one, "ISLET_TEST_ADVISORIES=1"); err == nil ||
		!strings.Contains(out, "asked: run ./packaging/advisories check -max-age 60 . ./runtime/shim/cmd") || !slices.Equal(names(), before) {
		t.Errorf("with an advisory for a linked module: %v: %s\n%q", err, out, names())
	}
	for text, says := range map[string]string{
		"# Changelog\n\n## 0.1.1 - 2026-01-02\n\n- x\n":   `no section "## 0.1.0 - DATE"`,
		"# Changelog\n\n## Unreleased\n\n- x\n" + changes: "unreleased changes",
	} {
		write(t, changelog, text, 0o644)
		if out, err := gather("ISLET_RELEASE_KEYS=" + one); err == nil || !strings.Contains(out, says) || !slices.Equal(names(), before) {
			t.Errorf("with the changelog %q: %v: %s\n%q", text, err, out, names())
		}
	}
	write(t, changelog, changes, 0o644)
	if out, err := gather("ISLET_RELEASE_KEYS=" + one + ":" + top + "/none"); err == nil || !slices.Equal(names(), before) {
		t.Errorf("without one of the keys: %v: %s\n%q", err, out, names())
	}
	for text, says := range map[string]string{"\"name\": \"glibc\",\n\"versionInfo\": \"5-7\",\n": "not made, because the sources of glibc=5-7 are missing", "\"name\": \"musl\",\n": "islet-0.1.0-linux-arm.spdx.json does not name a C library"} {
		write(t, filepath.Join(dist, archive("0.1.0", "arm"), "doc/islet.spdx.json"), text, 0o644)
		if out, err := gather("ISLET_RELEASE_KEYS=" + one); err == nil || !strings.Contains(out, says) || !slices.Equal(names(), before) {
			t.Errorf("of an archive that has %q: %v: %s\n%q", text, err, out, names())
		}
	}
}
