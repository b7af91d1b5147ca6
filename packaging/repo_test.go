package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRepositoryIsWhole checks that a published repository is either kept or replaced by a signed one. The private key is not in the
// repository. The repository contains the address where it is served, not the directory where it was created. The tools in this test, such
// as gpg, are fakes. The tests in test/system let apt read a real repository.
func TestRepositoryIsWhole(t *testing.T) {
	top := t.TempDir()
	bin, served := filepath.Join(top, "bin"), filepath.Join(top, "dist/repo")
	const gpg = `#!/bin/sh
for last in "$@"; do :; done
case "$*" in
*--list-secret-keys*) exit 2 ;;
*--quick-generate-key*) echo private >"$GNUPGHOME/private" ;;
*--export*) [ "$last" = nobody ] || echo "key of $last" ;;
*"$FAILS"*) exit 2 ;;
*--output*) while [ "$1" != --output ]; do shift; done; echo signed >"$2" ;;
esac
`
	for name, text := range map[string]string{"gpg": gpg, "gpgconf": "#!/bin/sh\n", "dpkg-scanpackages": "#!/bin/sh\necho Package: islet\n", "createrepo_c": "#!/bin/sh\nfor d; do :; done\nmkdir $d/repodata && echo index >$d/repodata/repomd.xml\n"} {
		write(t, filepath.Join(bin, name), text, 0o755)
	}
	write(t, filepath.Join(top, "packages/islet_1-1_amd64.deb"), "deb", 0o644)
	write(t, filepath.Join(top, "packages/islet-1-1.x86_64.rpm"), "rpm", 0o644)
	made := func(env ...string) (string, error) {
		return try(exec.Command("./repo.sh", filepath.Join(top, "packages"), served),
			append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "SOURCE_DATE_EPOCH=1700000000", "ISLET_SIGNING_KEY=", "FAILS=none"}, env...)...)
	}
	out, err := made()
	if err != nil || !strings.Contains(out, "do not publish it") {
		t.Fatalf("%v: %s", err, out)
	}
	first := tree(t, served)
	for _, file := range []string{"/apt/dists/stable/InRelease", "/apt/dists/stable/Release.gpg", "/rpm/repodata/repomd.xml.asc"} {
		if !strings.HasSuffix(first[file], "signed\n") {
			t.Errorf("%s is %q", file, first[file])
		}
	}
	for file, text := range first {
		if strings.Contains(file, "trial-key") || strings.HasSuffix(text, "private\n") {
			t.Errorf("%s is served: %q", file, text)
		}
	}
	if !strings.Contains(first["/islet.repo"], "baseurl=file://"+served+"/rpm\n") ||
		!strings.Contains(first["/islet.sources"], "URIs: file:"+served+"/apt\n") ||
		!strings.Contains(first["/islet.sources"], "Signed-By: "+served+"/islet.gpg\n") {
		t.Errorf("%s%s", first["/islet.repo"], first["/islet.sources"])
	}
	for _, fails := range [][]string{{"FAILS=--clearsign"}, {"FAILS=repomd.xml"}, {"ISLET_SIGNING_KEY=nobody"}} {
		if out, err := made(fails...); err == nil || !same(first, tree(t, served)) {
			t.Errorf("%s: %v, the served repository is now %q: %s", fails, err, tree(t, served), out)
		}
	}
	write(t, filepath.Join(served, "apt/pool/islet_0-1_amd64.deb"), "an old package", 0o644)
	if out, err := made("ISLET_SIGNING_KEY=mine", "URL=https://example.com/islet/"); err != nil || strings.Contains(out, "do not publish") {
		t.Fatalf("%v: %s", err, out)
	}
	now := tree(t, served)
	if now["/apt/pool/islet_0-1_amd64.deb"] != "" || !strings.HasSuffix(now["/islet.gpg"], "key of mine\n") {
		t.Errorf("%q", now)
	}
	if r, s := now["/islet.repo"], now["/islet.sources"]; !strings.Contains(r, "baseurl=https://example.com/islet/rpm\n") ||
		!strings.Contains(r, "gpgkey=https://example.com/islet/islet.asc\n") ||
		!strings.Contains(s, "URIs: https://example.com/islet/apt\n") || strings.Contains(r+s, top) {
		t.Errorf("%s%s", r, s)
	}
	if left, _ := filepath.Glob(filepath.Join(top, "dist/*")); len(left) != 2 {
		t.Errorf("there are %q", left)
	}
}
