package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestRepository: apt installs from the signed directory that make repo makes, with no network,
// and takes nothing from one that was changed.
func TestRepository(t *testing.T) {
	for _, tool := range []string{"gpg", "createrepo_c", "dpkg-scanpackages"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: packaging/deps.sh packages", tool)
		}
	}
	s := packaged(t, Systemd, "deb", 1)
	repo := filepath.Join(s.Dir, "payload/repo")
	cmd := exec.Command(filepath.Join(machine.Root(t), "packaging/repo.sh"), packages(t, false), repo)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.Run(`rm -f /etc/apt/sources.list && printf '%s\n' 'Types: deb' 'URIs: file:/payload/repo/apt' 'Suites: stable' 'Components: main' 'Signed-By: /payload/repo/islet.gpg' >/etc/apt/sources.list.d/islet.sources`)
	s.Run("apt-get update && apt-get install -y islet")
	ready(s, 1)
	s.Run("apt-get install -y islet-kubelet islet-cni && systemctl is-active islet-cri.service && dpkg -s islet-kubelet islet-cni islet | grep -c '^Status: install ok installed' | grep -qx 3")
	s.Run("apt-get purge -y islet-kubelet islet-cni islet && ! test -e /usr/bin/islet")

	index := filepath.Join(repo, "apt/dists/stable/main/binary-amd64/Packages")
	text, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "Version: 0", "Version: 9", 1)
	if err := os.WriteFile(index, []byte(changed), 0o644); err != nil || changed == string(text) {
		t.Fatal("the index was not changed", err)
	}
	if err := os.Remove(index + ".gz"); err != nil {
		t.Fatal(err)
	}
	if out, code := s.Try("rm -rf /var/lib/apt/lists/* && apt-get update && apt-get install -y islet"); code == 0 {
		t.Errorf("a changed repository was taken:\n%s", out)
	}
	s.Run("! test -e /usr/bin/islet")
}
