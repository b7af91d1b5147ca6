package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Repository has packaging/repo.sh make a repository of a directory of packages, signed by a key for
// trying unless env says otherwise, and returns what it says. Where there are packages to test, make
// has installed what tests them: without it the test fails.
func Repository(t *testing.T, packages, repo string, env ...string) string {
	t.Helper()
	Tools(t, "gpg", "createrepo_c", "dpkg-scanpackages")
	cmd := exec.Command(filepath.Join(Root(t), "packaging/repo.sh"), packages, repo)
	cmd.Env = append(os.Environ(), append([]string{"SOURCE_DATE_EPOCH=1700000000", "ISLET_SIGNING_KEY="}, env...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// Tools demands programs with which packages are made and looked at.
func Tools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is not installed: packaging/deps.sh packages", name)
		}
	}
}
