package packaging

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// write creates a file and its directories.
func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(text), 0o755)
}

// TestSourcesOfTheOCIRuntime checks that the sources are identified by their checksums, not by a Debian revision. A mirror with the right
// file can be used, and a mirror with another file cannot.
func TestSourcesOfTheOCIRuntime(t *testing.T) {
	var mu sync.Mutex // guards the list of requested files
	var asked []string
	pool := map[string]string{"/old/pool/main/c/crun/crun_1.tar": "crun", "/apt/pool/main/libs/libseccomp/libseccomp_2.tar": "libseccomp", "/old/pool/main/libs/libseccomp/libseccomp_2.tar": "another", "/apt/pool/main/g/glibc/glibc_3.tar": "changed",
		"/apt/pool/updates/main/g/glibc/libc_3_arm64.deb": "glibc:arm64"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Path)
		mu.Unlock()
		text, ok := pool[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	dir := t.TempDir()
	copied(t, "oci/source.sh", filepath.Join(dir, "source.sh"))
	list := "# a comment\n"
	for _, line := range []string{"crun 1-1 crun_1.tar", "libseccomp 2-1 libseccomp_2.tar", "glibc 3-1 glibc_3.tar", "glibc 3-2 glibc_3.tar", "glibc:arm64 3-2 libc_3_arm64.deb"} {
		name, _, _ := strings.Cut(line, " ")
		list += fmt.Sprintf("%s %x\n", line, sha256.Sum256([]byte(name)))
	}
	write(t, filepath.Join(dir, "sources"), list, 0o644)
	write(t, filepath.Join(dir, "list"), "deb [trusted=yes] "+server.URL+"/apt stable main\n", 0o644)
	write(t, filepath.Join(dir, "apt.conf"), "Dir::Etc::sourcelist \""+dir+
		"/list\";\nDir::Etc::sourceparts \"-\";\nDir::State::lists \""+dir+"/lists\";\nAcquire::http::Proxy \"DIRECT\";\n", 0o644)
	into := filepath.Join(dir, "into")
	fetch := func(mirrors string, names ...string) (string, error) {
		return try(exec.Command(filepath.Join(dir, "source.sh"), append([]string{into}, names...)...), "APT_CONFIG="+dir+"/apt.conf", "ISLET_DEBIAN_MIRRORS="+mirrors)
	}
	if out, err := fetch("", "crun"); err == nil || !strings.Contains(out, "/apt/pool/main/c/crun/crun_1.tar") ||
		!strings.Contains(out, "ISLET_DEBIAN_MIRRORS") {
		t.Errorf("the mirror does not have the file: %v: %s", err, out)
	}
	if out, err := fetch(server.URL+"/none "+server.URL+"/old/", "crun", "libseccomp"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := fetch("", "glibc:arm64"); err != nil { // from the archive of security updates
		t.Errorf("%v: %s", err, out)
	}
	for name, want := range map[string]string{"crun_1.tar": "crun", "libseccomp_2.tar": "libseccomp", "libc_3_arm64.deb": "glibc:arm64"} {
		if b, err := os.ReadFile(filepath.Join(into, name)); err != nil || string(b) != want {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	mu.Lock()
	asked = nil
	mu.Unlock()
	out, err := fetch("", "crun", "libseccomp")
	mu.Lock()
	if err != nil || len(asked) > 0 {
		t.Errorf("existing files were requested: %v, %v: %s", asked, err, out)
	}
	mu.Unlock()
	if out, err := fetch("", "glibc=3-2"); err == nil {
		t.Errorf("a file with another checksum was accepted: %s", out)
	}
	if out, err := fetch("", "glibc=4"); err == nil || !strings.Contains(out, "is not in") {
		t.Errorf("an unknown source: %v: %s", err, out)
	}
	left, _ := filepath.Glob(into + "/*")
	if len(left) != 3 {
		t.Errorf("there are %v", left)
	}
}

// TestRunInstallsNothing checks that make run installs nothing. It uses the built OCI runtime or builds one. Otherwise it uses the OCI
// runtime of the host and reports this.
func TestRunInstallsNothing(t *testing.T) {
	for _, c := range []struct {
		name, build, host, want string
		linked                  string
		fails                   bool
	}{
		{name: "built before", build: `[ "$2" = cached ] && echo /full`, host: "runc", linked: "/full"},
		{name: "built now", build: `[ "$2" = run ] && echo /small`, host: "runc", linked: "/small"},
		{name: "no compiler", build: "exit 1", host: "runc", want: "/runc is used: it may be slower"},
		{name: "nothing", build: "exit 1", want: "install gcc", fails: true},
	} {
		dir := t.TempDir()
		copied(t, "oci/for-run.sh", filepath.Join(dir, "oci/for-run.sh"))
		write(t, filepath.Join(dir, "oci/build.sh"), "#!/bin/sh\n[ $1 = amd64 ] || exit 1\n"+c.build+"\n", 0o755)
		for _, name := range []string{"deps.sh", "bin/apt-get"} {
			write(t, filepath.Join(dir, name), "#!/bin/sh\necho >"+dir+"/installed\n", 0o755)
		}
		for _, name := range []string{"sh", "dirname", "mkdir", "rm", "ln", "mv"} {
			path, err := exec.LookPath(name)
			if err == nil {
				err = os.Symlink(path, filepath.Join(dir, "bin", name))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if c.host != "" {
			write(t, filepath.Join(dir, "bin", c.host), "#!/bin/sh\n", 0o755)
		}
		cmd := exec.Command(filepath.Join(dir, "oci/for-run.sh"), filepath.Join(dir, "out"), "amd64")
		cmd.Env = []string{"PATH=" + filepath.Join(dir, "bin")}
		out, err := cmd.CombinedOutput()
		link, _ := os.Readlink(filepath.Join(dir, "out/crun")) // without a link, the result is empty
		if (err != nil) != c.fails || link != c.linked || !strings.Contains(string(out), c.want) || c.want == "" && len(out) > 0 {
			t.Errorf("%s: %v, %q: %s", c.name, err, link, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "installed")); err == nil {
			t.Errorf("%s: something was installed", c.name)
		}
	}
}
