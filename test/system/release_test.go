package system

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// A gathered is a release of the real archive and packages for this machine's architecture.
type gathered struct {
	dir     string // the directory of make release
	archive string // name of the archive in it
	version string
	gpg     string // path of the public key that signed the checksums
}

// gather builds a release like make release. The archives are signed by the given keys, and the checksums by a new GPG key. The sources of
// the OCI runtime are replaced by small files.
func gather(t *testing.T, keys ...string) (g gathered) {
	t.Helper()
	real := distribution(t)
	machine.RequireTools(t, "gpg")
	g.archive = filepath.Base(real)
	g.version = strings.TrimSuffix(strings.TrimPrefix(g.archive, "islet-"), "-linux-"+runtime.GOARCH+".tar.gz")
	top, home := t.TempDir(), filepath.Join(t.TempDir(), "gpg")
	g.dir, g.gpg = filepath.Join(top, "dist/release"), filepath.Join(top, "key.gpg")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "PATH="+top+"/bin:"+os.Getenv("PATH"), "GNUPGHOME="+home, "ISLET_OCI_CACHE="+top,
			"SOURCE_DATE_EPOCH=1700000000",
			"ISLET_SIGNING_KEY=release@islet.invalid", "ISLET_RELEASE_KEYS="+strings.Join(keys, ":"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}

	root := machine.Root(t)
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	run("sh", "-c", fmt.Sprintf(
		`set -e; mkdir -m 700 %[3]s; cd %[1]s; mkdir -p bin source packaging dist; ln -s %[4]s dist/packages; ln -s %[5]s dist/; tar -xzf %[5]s -C dist --wildcards '*/doc/islet.spdx.json'
		cp %[2]s/CHANGELOG.md .; cp -r %[2]s/packaging/release.sh %[2]s/packaging/install.sh %[2]s/packaging/oci packaging/; git init -q; git -c user.name=n -c user.email=e -c commit.gpgsign=false commit -q --allow-empty -m 'packaging: a change'`, top, root, home, packages(t, false), real))
	put(t, filepath.Join(top, "bin/go"), fmt.Sprintf("#!/bin/sh\ncd %s && exec %s \"$@\"\n", root, tool))
	if err := os.Chmod(filepath.Join(top, "bin/go"), 0o755); err != nil {
		t.Fatal(err)
	}
	libc := regexp.MustCompile(`"name": "glibc",\s*"versionInfo": "(.*)"`).FindStringSubmatch(read(t,
		filepath.Join(top, "dist", strings.TrimSuffix(g.archive, ".tar.gz"), "doc/islet.spdx.json")))
	if libc == nil {
		t.Fatal("the archive names no C library")
	}
	list := ""
	for _, source := range []string{"crun 1", "libseccomp 2", "libcap2 3", "systemd 4", "glibc " + libc[1]} {
		name, _, _ := strings.Cut(source, " ")
		put(t, filepath.Join(top, "source", name), name)
		list += fmt.Sprintf("%s %s %x\n", source, name, sha256.Sum256([]byte(name)))
	}
	put(t, filepath.Join(top, "packaging/oci/sources"), list)
	t.Cleanup(func() { run("gpgconf", "--kill", "all") })
	run("gpg", "--quiet", "--batch", "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key",
		"release <release@islet.invalid>", "ed25519", "sign", "never")
	run("gpg", "--quiet", "--output", g.gpg, "--export", "release@islet.invalid")
	if out := run(filepath.Join(top, "packaging/release.sh"), g.version, filepath.Join(top, "dist"), g.dir); strings.Contains(out,
		"is not set") {
		t.Fatal(out)
	}
	return g
}

// TestRelease checks that a release can be verified with gpgv and sha256sum, and installed with its install.sh. Nodes that require the
// signatures of both keys must accept the release, and reject an archive with one signature.
func TestRelease(t *testing.T) {
	r := machine.NewReleaser(t)
	key := filepath.Join(t.TempDir(), "two")
	other := r.NewKey(key)
	g := gather(t, r.Key, key)
	s := New(t, Systemd, map[string]string{"release": g.dir, "key.gpg": g.gpg, "podtool.tar": machine.Archive(t)})
	half := filepath.Join(s.Dir, "payload/half.tar.gz")
	if err := os.Link(s.At("/payload/release/"+g.archive), half); err != nil {
		t.Fatal(err)
	}
	r.Sign(half, g.version, runtime.GOARCH, key)
	s.Boot()

	const signed = "cd /payload/release && gpgv --keyring /payload/key.gpg SHA256SUMS.asc SHA256SUMS"
	s.Run(signed)
	if files, sums := s.Run("cd /payload/release && ls | grep -v ^SHA256SUMS"),
		s.Run("cd /payload/release && sha256sum --check --strict SHA256SUMS"); sums != strings.ReplaceAll(files, "\n", ": OK\n") {
		t.Errorf("the files are\n%s and sha256sum prints\n%s", files, sums)
	}
	s.Run("cp -r /payload/release /root/changed && sed -i 's/^./x/' /root/changed/SHA256SUMS && ! (" + strings.Replace(signed,
		"/payload/release", "/root/changed", 1) + ")")

	const manifest = `apiVersion: v1\nkind: Pod\nmetadata: {name: p0}\nspec: {containers: [{name: c, image: "%s", imagePullPolicy: Never, args: [count, 20ms]}]}\n`
	put(t, s.At("/payload/edge.yaml"),
		fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nconfiguration: {healthyFor: 2s, deadline: 20s}\nupdate: {threshold: 2, keys: [%q, %q]}\n", r.Public, other))
	put(t, s.At("/payload/p0.yaml"), fmt.Sprintf(strings.ReplaceAll(manifest, `\n`, "\n"), machine.Image))
	put(t, s.At("/payload/default"), "ISLET_ARGS='--pod-manifest-path=/etc/kubernetes/manifests --edge-config=/etc/islet/edge.yaml'\n")
	s.Run("install -D -m 600 -t /etc/islet /payload/edge.yaml && install -D -m 600 -t /etc/kubernetes/manifests /payload/p0.yaml && install -D -t /var/lib/islet/images /payload/podtool.tar && cp /payload/default /etc/default/islet")
	s.Run("cd /payload/release && sh install.sh islet-*-linux-amd64.tar.gz && systemctl is-active islet.service")
	const path = "PATH=/usr/local/bin:$PATH "
	s.Await(path + "islet pods --no-headers | grep -q 1/1")
	pods := s.Run(counting)

	update := path + "islet update /payload/release/" + g.archive
	says(s, 1, update, "it is not newer than the running version")
	// The node now runs another program of the same version. Data after the end of an ELF file has no effect.
	s.Run("cd /usr/local/bin && cp islet new && echo another >>new && mv new islet && systemctl restart islet.service")
	says(s, 1, path+"islet update --older /payload/half.tar.gz", "signed by 1")
	says(s, 0, update+" --older", "version "+g.version+" is installed and runs")
	s.Run("tar -xzOf /payload/release/" + g.archive + " islet-" + g.version + "-linux-amd64/islet | cmp - /usr/local/bin/islet")
	if now := s.Run(counting); now != pods || strings.Count(now, "\n") != 1 {
		t.Errorf("the processes of pods were %q and are %q", pods, now)
	}
}
