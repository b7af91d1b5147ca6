package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Repository runs packaging/repo.sh, which creates a repository from a directory of packages. It returns the output of the script. The
// repository is signed with a test key, unless env selects another key. If a tool is missing, the test fails. The tools are expected to
// exist, because make installs them together with the packages.
func Repository(t *testing.T, packages, repo string, env ...string) string {
	t.Helper()
	RequireTools(t, "gpg", "createrepo_c", "dpkg-scanpackages")
	cmd := exec.Command(filepath.Join(Root(t), "packaging/repo.sh"), packages, repo)
	cmd.Env = append(os.Environ(), append([]string{"SOURCE_DATE_EPOCH=1700000000", "ISLET_SIGNING_KEY="}, env...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// RequireTools fails the test unless the given programs are installed.
func RequireTools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is not installed: packaging/deps.sh packages", name)
		}
	}
}
